//! Licence expressions, as SPDX writes them: names joined by `OR`, `AND`, `WITH` and brackets.

/// Whether an expression can be met with allowed licences alone. An expression that cannot be read cannot.
pub(crate) fn is_met(expression: &str, allowed: &[String]) -> bool {
    // Old packages write a slash where they mean "or".
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest, allowed) == Some(true) && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut met = every(rest, allowed)?;
    while take(rest, "OR") {
        met |= every(rest, allowed)?;
    }
    Some(met)
}

fn every(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut met = one(rest, allowed)?;
    while take(rest, "AND") {
        met &= one(rest, allowed)?;
    }
    Some(met)
}

fn one(rest: &mut &[&str], allowed: &[String]) -> Option<bool> {
    if take(rest, "(") {
        let met = any(rest, allowed)?;
        return take(rest, ")").then_some(met);
    }
    let (name, after) = rest.split_first()?;
    if matches!(*name, "AND" | "OR" | "WITH" | ")") {
        return None;
    }
    *rest = after;
    let mut name = (*name).to_owned();
    if take(rest, "WITH") {
        let (exception, after) = rest.split_first()?;
        *rest = after;
        name = format!("{name} WITH {exception}");
    }
    Some(allowed.contains(&name))
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let taken = rest.first() == Some(&word);
    if taken {
        *rest = &rest[1..];
    }
    taken
}

#[test]
fn expressions_are_read_as_they_are_meant() {
    let allowed = ["MIT", "Apache-2.0", "ISC"].map(str::to_owned);
    let met = [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0 OR MIT AND ISC",
        "MIT/Apache-2.0",
        "ISC AND (GPL-3.0 OR Apache-2.0)",
        "(MIT)",
        "Apache-2.0 WITH LLVM-exception OR MIT",
    ];
    for expression in met {
        assert!(is_met(expression, &allowed), "{expression}");
    }
    let unmet = [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR ISC) AND GPL-3.0",
        "GPL-3.0 AND MIT OR GPL-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "MIT OR",
        "(MIT",
        "MIT)",
        "MIT ISC",
        "OR MIT",
    ];
    for expression in unmet {
        assert!(!is_met(expression, &allowed), "{expression}");
    }
}
