//! The declaration of settings: each is written once, with its type, default, range, variables, and whether a change of it
//! applies without a restart.
//!
//! [`section!`] makes the struct that serde reads from the settings file and shows, its defaults, and the list of its
//! [`Field`]s. Ranges, keys and variables are looked up in those lists; nothing repeats them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Longest time in seconds: every time and size has a maximum, so that no sum of them can overflow.
pub const MAX_SECS: u64 = 7 * 24 * 3600;
/// Largest buffer or file in memory, in bytes.
pub const MAX_SIZE: u64 = 1 << 30;

/// An environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Whether Hermes reads it too, so that Hermes' `.env` may contain it.
    pub shared: bool,
    /// Description.
    pub about: &'static str,
}

/// A variable that Hermes reads too.
pub const fn shared(name: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        shared: true,
        about,
    }
}

/// A variable of the relay alone.
pub const fn own(name: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        shared: false,
        about,
    }
}

/// The facts of a setting besides its type and default.
#[derive(Debug)]
pub struct Field {
    /// Its key in its section.
    pub name: &'static str,
    /// Whether the settings file may have it; else it is computed from other sources.
    pub in_file: bool,
    /// The valid numbers.
    pub range: Option<RangeInclusive<u64>>,
    /// The variables that set it.
    pub variables: &'static [Variable],
    /// Its dotted key in Hermes' `config.yaml`.
    pub hermes: Option<&'static str>,
    /// Whether a reload applies a change of it, or of anything in it.
    pub is_live: bool,
    /// The settings in it, if it is a section.
    pub fields: &'static [Self],
}

impl Field {
    /// A setting without further facts.
    pub const fn new(name: &'static str, in_file: bool) -> Self {
        Self {
            name,
            in_file,
            range: None,
            variables: &[],
            hermes: None,
            is_live: false,
            fields: &[],
        }
    }

    /// Under another name than the struct's.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// With valid numbers.
    pub const fn range(mut self, range: RangeInclusive<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// With variables that set it.
    pub const fn env(mut self, variables: &'static [Variable]) -> Self {
        self.variables = variables;
        self
    }

    /// With a key in Hermes' `config.yaml`.
    pub const fn hermes(mut self, key: &'static str) -> Self {
        self.hermes = Some(key);
        self
    }

    /// Changed without a restart.
    pub const fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// A section.
    pub const fn fields(mut self, fields: &'static [Self]) -> Self {
        self.fields = fields;
        self
    }
}

/// Calls `visit` with every setting and its dotted key, sections before what is in them.
pub fn walk(fields: &'static [Field], prefix: &str, visit: &mut dyn FnMut(&str, &'static Field)) {
    for field in fields {
        let key = format!("{prefix}{}", field.name);
        visit(&key, field);
        walk(field.fields, &format!("{key}."), visit);
    }
}

/// The settings on the way to a dotted key, outermost first; shorter if there is no such setting.
pub fn path(mut fields: &'static [Field], key: &str) -> impl Iterator<Item = &'static Field> {
    key.split('.').map_while(move |name| {
        let field = fields.iter().find(|field| field.name == name)?;
        fields = field.fields;
        Some(field)
    })
}

/// The numbers of serialized settings that are out of their range: their dotted keys, and the rule.
pub fn out_of_range(fields: &'static [Field], shown: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(fields, "", &mut |key, field| {
        let value = shown.pointer(&format!("/{}", key.replace('.', "/")));
        if let (Some(range), Some(value)) = (&field.range, value.and_then(Value::as_u64))
            && !range.contains(&value)
        {
            let (min, max) = (range.start(), range.end());
            let rule = format!("must be between {min} and {max}, not {value}");
            found.push((key.to_owned(), rule));
        }
    });
    found
}

/// Reads a section or a list without any value, which is null in YAML, as the default.
pub fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Declares a section of the settings. Each setting is `name: type = default, facts;`: a missing default is the type's own,
/// and the facts are methods of [`Field`]. Below `sections` are the sections in it. Settings below `resolved` are not in the
/// file; resolving the layers sets them.
macro_rules! section {
    (
        $(#[$about:meta])*
        pub struct $section:ident {
            $(
                $(#[$meta:meta])*
                $vis:vis $field:ident: $type:ty $(= $default:expr)? $(, $fact:ident $(($($value:tt)*))?)*;
            )*
        }
        $(sections {
            $($(#[$inner_meta:meta])* pub $inner:ident: $inner_type:ident;)*
        })?
        $(resolved {
            $(
                $(#[$resolved_meta:meta])*
                $resolved_vis:vis $resolved:ident: $resolved_type:ty $(= $resolved_default:expr)?
                $(, $resolved_fact:ident $(($($resolved_value:tt)*))?)*;
            )*
        })?
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $section {
            $($(
                $(#[$inner_meta])*
                #[serde(deserialize_with = "crate::setting::null_is_default")]
                pub $inner: $inner_type,
            )*)?
            $($(#[$meta])* $vis $field: $type,)*
            $($($(#[$resolved_meta])* #[serde(skip_deserializing)] $resolved_vis $resolved: $resolved_type,)*)?
        }

        impl Default for $section {
            fn default() -> Self {
                Self {
                    $($field: $crate::setting::or_default!($($default)?),)*
                    $($($inner: $inner_type::default(),)*)?
                    $($($resolved: $crate::setting::or_default!($($resolved_default)?),)*)?
                }
            }
        }

        impl $section {
            pub(crate) const FIELDS: &'static [$crate::setting::Field] = &[
                $($($crate::setting::Field::new(stringify!($inner), true).fields($inner_type::FIELDS),)*)?
                $($crate::setting::Field::new(stringify!($field), true)$(.$fact($($($value)*)?))*,)*
                $($(
                    $crate::setting::Field::new(stringify!($resolved), false)
                        $(.$resolved_fact($($($resolved_value)*)?))*,
                )*)?
            ];
        }
    };
}
pub(crate) use section;

/// The given default, else the type's own.
macro_rules! or_default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}
pub(crate) use or_default;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    section! {
        /// Outside.
        pub struct Outer {
            /// A number.
            pub count: u32 = 3, range(1..=9), env(&[shared("COUNT", "a number")]);
        } sections {
            /// A section.
            pub inner: Inner;
        } resolved {
            /// Computed.
            pub sum: u64 = 7;
        }
    }

    section! {
        /// Inside.
        #[derive(PartialEq)]
        pub struct Inner {
            /// A time.
            pub secs: u64 = 5, range(0..=MAX_SECS);
            /// A text.
            pub text: Option<String>, live;
        }
    }

    #[test]
    fn a_section_has_its_defaults_and_refuses_what_it_does_not_have() {
        let read = |value| serde_json::from_value::<Outer>(value);
        let defaults = read(json!({"inner": null})).unwrap();
        assert_eq!((defaults.count, defaults.inner.secs, defaults.sum), (3, 5, 7));
        assert_eq!(read(json!({"inner": {"secs": 6}})).unwrap().inner.secs, 6);
        for unknown in [json!({"sum": 8}), json!({"inner": {"sum": 8}})] {
            let error = read(unknown).unwrap_err().to_string();
            assert!(error.contains("unknown field `sum`"), "{error}");
        }
    }

    #[test]
    fn facts_are_found_by_dotted_key() {
        let mut keys = Vec::new();
        walk(Outer::FIELDS, "", &mut |key, field| {
            keys.push((key.to_owned(), field.in_file));
        });
        let wanted = [
            ("inner", true),
            ("inner.secs", true),
            ("inner.text", true),
            ("count", true),
            ("sum", false),
        ];
        assert_eq!(keys, wanted.map(|(key, in_file)| (key.to_owned(), in_file)));
        let live = |key| path(Outer::FIELDS, key).any(|field| field.is_live);
        assert!(live("inner.text") && live("inner.text.deeper"));
        assert!(!live("inner") && !live("inner.secs") && !live("text") && !live(""));
    }

    #[test]
    fn numbers_out_of_their_range_are_named() {
        let check = |count: u64, secs: u64| {
            let shown = json!({"count": count, "inner": {"secs": secs}});
            let broken = out_of_range(Outer::FIELDS, &shown).into_iter();
            broken
                .map(|(key, rule)| format!("{key} {rule}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(check(9, MAX_SECS), Vec::<String>::new());
        assert_eq!(check(0, 0), ["count must be between 1 and 9, not 0"]);
        assert_eq!(check(0, u64::MAX).len(), 2);
        let long = format!("inner.secs must be between 0 and {MAX_SECS}, not {}", u64::MAX);
        assert_eq!(check(1, u64::MAX), [long]);
    }
}
