//! Finds the places of a file that can be changed, and what to change them to.
//!
//! The changes are those of `cargo mutants`: another operator, no negation, a guard that always or never holds, and a function
//! that returns at once.

use proc_macro2::Span;
use quote::ToTokens;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprUnary, GenericArgument, ImplItemFn, Item, ItemFn,
    ItemImpl, PathArguments, ReturnType, Signature, Stmt, TraitItemFn, Type, UnOp,
};

/// One change of one place.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The bytes that it replaces; empty for what is inserted.
    pub range: Range<usize>,
    pub line: usize,
    /// What it does, for people.
    pub what: String,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    /// The expression as a whole becomes this one.
    Instead(String),
    /// This statement comes first in the function.
    First(String),
}

impl Mutant {
    /// The text to put into the range, which holds `old` now. It adds no line, so that errors of the compiler name the right one.
    pub fn text(&self, number: usize, old: &str) -> String {
        let on = format!("crate::mutant::is_on({number})");
        match &self.change {
            Change::Instead(new) => format!("(if {on} {{ {new} }} else {{ {old} }})"),
            Change::First(statement) => format!(" if {on} {{ {statement} }} "),
        }
    }
}

/// All mutants of a file. An error is a file that is not Rust.
pub fn mutants(text: &str) -> syn::Result<Vec<Mutant>> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    found: Vec<Mutant>,
}

impl Finder {
    fn instead(&mut self, at: Span, what: String, new: String) {
        self.found.push(Mutant {
            range: at.byte_range(),
            line: at.start().line,
            what,
            change: Change::Instead(new),
        });
    }

    fn returns(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() || block.stmts.is_empty() {
            return;
        }
        let first = block.brace_token.span.open();
        let at = first.byte_range().end;
        for value in values(&signature.output) {
            let statement = format!("return {value};").replace(" ;", ";");
            if is_all(block, value) {
                continue;
            }
            self.found.push(Mutant {
                range: at..at,
                line: first.start().line,
                what: format!(
                    "{} returns {}",
                    signature.ident,
                    if value.is_empty() { "at once" } else { value }
                ),
                change: Change::First(statement),
            });
        }
    }
}

/// Whether a function does nothing but return this value.
fn is_all(block: &Block, value: &str) -> bool {
    let [Stmt::Expr(only, None)] = &block.stmts[..] else {
        return false;
    };
    only.to_token_stream().to_string().replace(' ', "") == value
}

/// What a function of this type could return without doing anything.
fn values(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, kind) = output else {
        return &[""];
    };
    if let Type::Reference(reference) = &**kind {
        return match name(&reference.elem).as_deref() {
            Some("str") if reference.mutability.is_none() => &["\"\""],
            _ => &[],
        };
    }
    if matches!(&**kind, Type::Tuple(tuple) if tuple.elems.is_empty()) {
        return &[""];
    }
    match name(kind).as_deref() {
        Some("bool") => &["true", "false"],
        Some("Option") => &["None"],
        Some("String") => &["String::new()"],
        Some("Vec") => &["Vec::new()"],
        Some("usize" | "u64" | "u32" | "u16" | "u8" | "i64" | "i32") => &["0", "1"],
        Some("Result") => match argument(kind) {
            Some(Type::Tuple(tuple)) if tuple.elems.is_empty() => &["Ok(())"],
            Some(inner) => match name(inner).as_deref() {
                Some("bool") => &["Ok(true)", "Ok(false)"],
                Some("Option") => &["Ok(None)"],
                Some("Vec") => &["Ok(Vec::new())"],
                _ => &[],
            },
            None => &[],
        },
        _ => &[],
    }
}

fn name(kind: &Type) -> Option<String> {
    match kind {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}

fn argument(kind: &Type) -> Option<&Type> {
    let Type::Path(path) = kind else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(first) => Some(first),
        _ => None,
    }
}

fn other_operator(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Lt(_) | BinOp::Le(_) => ">",
        BinOp::Gt(_) | BinOp::Ge(_) => "<",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "+",
        BinOp::Div(_) => "*",
        BinOp::Rem(_) => "/",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) => "+=",
        _ => return None,
    })
}

/// Whether this is part of `if let … && …`, where no other operator is allowed.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string().replace(' ', "");
        text.starts_with("#[test]") || text.starts_with("#[tokio::test") || text.contains("cfg(test")
    })
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Const(_) | Item::Static(_) | Item::Enum(_) | Item::Struct(_) | Item::Type(_) => return,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_left_out(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let is_debug = (item.trait_.as_ref())
            .and_then(|(_, path, _)| path.segments.last())
            .is_some_and(|last| last.ident == "Debug");
        if !is_debug {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if function.sig.constness.is_none() {
            self.returns(&function.sig, &function.block);
            visit::visit_block(self, &function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if function.sig.constness.is_none() && !is_left_out(&function.attrs) {
            self.returns(&function.sig, &function.block);
            visit::visit_block(self, &function.block);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.returns(&function.sig, block);
            visit::visit_block(self, block);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_generic_argument(&mut self, _: &'ast GenericArgument) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if let Some((_, guard)) = &arm.guard
            && !has_let(guard)
        {
            for always in ["true", "false"] {
                self.instead(
                    guard.span(),
                    format!("a guard that is {always}"),
                    always.to_owned(),
                );
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if let Some(other) = other_operator(&binary.op)
            && !has_let(&binary.left)
            && !has_let(&binary.right)
        {
            let old = binary.op.to_token_stream();
            let new = format!(
                "{} {other} {}",
                binary.left.to_token_stream(),
                binary.right.to_token_stream()
            );
            self.instead(binary.span(), format!("{other} instead of {old}"), new);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        if matches!(unary.op, UnOp::Not(_)) {
            self.instead(
                unary.span(),
                "no !".to_owned(),
                unary.expr.to_token_stream().to_string(),
            );
        }
        visit::visit_expr_unary(self, unary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mutants = mutants(text).unwrap();
        mutants.iter().map(|mutant| mutant.what.clone()).collect()
    }

    #[test]
    fn operators_negations_guards_and_results_change() {
        assert_eq!(
            found("fn f(a: u8) -> Foo { if !(a < 3) { x() } else { y() } }"),
            ["no !", "> instead of <"]
        );
        assert_eq!(
            found("fn f() -> bool { go() }"),
            ["f returns true", "f returns false"]
        );
        assert_eq!(found("fn f() -> bool { true }"), ["f returns false"]);
        assert_eq!(found("fn f() { go() }"), ["f returns at once"]);
        let guards = ["a guard that is true", "a guard that is false"];
        assert_eq!(
            found("fn f(a: u8) -> Foo { match a { 1 if go() => x(), _ => y() } }"),
            guards
        );
    }

    #[test]
    fn tests_constants_and_chains_with_let_stay() {
        for text in [
            "#[cfg(test)] mod tests { fn f() { go() } }",
            "#[test] fn f() { go() }",
            "const A: u8 = 1 + 2;",
            "const fn f() -> u8 { 1 + 2 }",
            "fn f() -> Foo { if let Some(a) = b && c() { x() } else { y() } }",
        ] {
            assert!(found(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_change_adds_no_line() {
        let text = "fn f(a: u8) -> Foo { g(a\n==\n3) }";
        let mutant = &mutants(text).unwrap()[0];
        let old = &text[mutant.range.clone()];
        let new = mutant.text(7, old);
        assert_eq!(new.matches('\n').count(), old.matches('\n').count());
        assert!(
            new.starts_with("(if crate::mutant::is_on(7) { a != 3 } else { a"),
            "{new}"
        );
    }
}
