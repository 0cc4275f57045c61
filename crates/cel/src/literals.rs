//! Checks literals once the types are known: patterns compile, and lists and maps are of one type.

use crate::ast::{Expression, Node};
use crate::check::Checked;
use crate::functions::times;
use crate::regexes;
use crate::source::Fault;
use crate::types::Type;

/// What is wrong with the literals of an expression.
pub(crate) fn check(checked: &Checked, positions: &[usize]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for function in ["duration", "timestamp", "matches"] {
        checked.expression.visit(&mut |expression| {
            let Node::Call { function: called, args, .. } = &expression.node else { return };
            let Some(argument) = args.first().filter(|_| called == function) else { return };
            let Some(text) = argument.literal().and_then(|value| value.as_str()) else { return };
            let is_valid = match function {
                "matches" => regexes::check(text).is_ok(),
                "duration" => times::duration(text).is_ok(),
                _ => times::timestamp(text).is_ok(),
            };
            if !is_valid {
                faults.push(Fault::new(positions[argument.id], format!("invalid {function} argument")));
            }
        });
    }
    same_types(checked, &checked.expression, positions, &mut faults);
    faults
}

fn mismatch(positions: &[usize], at: &Expression, expected: &Type, found: &Type) -> Fault {
    Fault::new(positions[at.id], format!("expected type '{expected}' but found '{found}'"))
}

/// Lists and maps that mix types are refused, except in the arguments of `format`.
fn same_types(checked: &Checked, expression: &Expression, positions: &[usize], faults: &mut Vec<Fault>) {
    let of = |part: &Expression, optional: bool| match checked.type_of(part) {
        Type::Optional(inner) if optional => (**inner).clone(),
        other => other.clone(),
    };
    match &expression.node {
        Node::Call { function, .. } if function == "format" => return,
        Node::List { items, optional } => {
            let mut types = items.iter().enumerate().map(|(i, item)| (item, of(item, optional.contains(&i))));
            if let Some((_, first)) = types.next()
                && let Some((item, other)) = types.find(|(_, other)| *other != first)
            {
                faults.push(mismatch(positions, item, &first, &other));
            }
        }
        Node::Map(entries) => {
            if let Some(first) = entries.first() {
                let (key, value) = (of(&first.key, false), of(&first.value, first.optional));
                for entry in &entries[1..] {
                    let found = [
                        (&entry.key, &key, of(&entry.key, false)),
                        (&entry.value, &value, of(&entry.value, entry.optional)),
                    ];
                    let wrong = found.into_iter().filter(|(_, expected, found)| **expected != *found);
                    faults.extend(wrong.map(|(at, expected, found)| mismatch(positions, at, expected, &found)));
                }
            }
        }
        _ => {}
    }
    match &expression.node {
        Node::Literal(_) | Node::Ident(_) | Node::Message(_) => {}
        Node::Select { operand, .. } => same_types(checked, operand, positions, faults),
        Node::Call { target, args, .. } => {
            target.iter().for_each(|part| same_types(checked, part, positions, faults));
            args.iter().for_each(|part| same_types(checked, part, positions, faults));
        }
        Node::List { items, .. } => items.iter().for_each(|part| same_types(checked, part, positions, faults)),
        Node::Map(entries) => entries.iter().for_each(|entry| {
            same_types(checked, &entry.key, positions, faults);
            same_types(checked, &entry.value, positions, faults);
        }),
        Node::Loop(of) => of.parts().into_iter().for_each(|part| same_types(checked, part, positions, faults)),
    }
}
