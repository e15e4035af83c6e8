//! No type name is defined twice in the sources: a name leads to one thing.

use std::collections::BTreeMap;

use crate::layers::lexer::Kind;
use crate::layers::{source, sources_without_tests};

/// The names of the types and traits that a source defines outside of tests, each with its line. Associated types are none.
fn defined_types(text: &str) -> Vec<(String, usize)> {
    let tokens = source::code(text);
    let mut depth = 0usize;
    let mut found = Vec::new();
    for pair in tokens.windows(2) {
        match &pair[0].kind {
            Kind::Mark('{') => depth += 1,
            Kind::Mark('}') => depth = depth.saturating_sub(1),
            Kind::Word(word) => {
                let defines =
                    matches!(word.as_str(), "struct" | "enum" | "trait") || (word == "type" && depth == 0);
                if let (true, Kind::Word(name)) = (defines, &pair[1].kind) {
                    found.push((name.clone(), pair[1].line));
                }
            }
            Kind::PathSep | Kind::Mark(_) | Kind::Literal => {}
        }
    }
    found
}

#[test]
fn no_type_name_is_defined_twice() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in sources_without_tests() {
        for (name, line) in defined_types(&text) {
            places.entry(name).or_default().push(format!("{file}:{line}"));
        }
    }
    assert!(places.len() > 500, "found only {} types", places.len());
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "defined more than once: {places:#?}");
}

#[test]
fn definitions_are_found_outside_of_tests_and_impls() {
    let text = "
        pub struct Plain { r#type: u8 }
        pub(crate) enum Choice<'a> { A(&'a str) }
        type Alias = u8;
        unsafe trait Contract { type Output; }
        impl Contract for Plain { type Output = u8; }
        fn f() { struct Local; }
        // struct Comment;
        const TEXT: &str = \"struct Literal\";
        #[cfg(test)]
        mod tests { struct Fixture; }
    ";
    let names: Vec<String> = defined_types(text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Plain", "Choice", "Alias", "Contract", "Local"]);
}
