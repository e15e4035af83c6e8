//! The stores for skills and data: every statement of their contracts, and hostile files.

/// One test per statement of a suite, on a store, and one that finds a statement without a test.
#[cfg(feature = "conformance")]
macro_rules! statements {
    ($run:path, $all:path, $store:ident: $($statement:ident),+ $(,)?) => {
        mod $store {
            use super::*;

            $(
                #[test]
                fn $statement() {
                    let outcome = $run(stringify!($statement), &super::$store);
                    outcome.expect("the suite has it").unwrap();
                }
            )+

            #[test]
            fn no_statement_is_left_out() {
                assert_eq!($all(), [$(stringify!($statement)),+]);
            }
        }
    };
}

#[cfg(feature = "conformance")]
mod data_statements;
mod hostile_files;
#[cfg(feature = "conformance")]
mod skill_statements;
