//! What a call costs at most, without its target.

use super::{Argument, Estimator, Size};
use crate::ast::Expression;
use crate::cost::{LIST, REGEX, TRAVERSAL, factor};
use crate::declarations::Overload;
use crate::types::Type;
use crate::value::Value;

/// A call by one of its overloads.
pub(super) struct Call<'c, 'e> {
    pub(super) function: &'c str,
    /// None for the selection of an optional field.
    pub(super) overload: Option<&'static Overload>,
    pub(super) target: Option<Argument<'e>>,
    pub(super) args: &'c [Argument<'e>],
    pub(super) costs: &'c [u64],
}

/// A cost and the size of the result, if it is known.
type Estimate = (u64, Option<Size>);

impl Call<'_, '_> {
    fn of_args(&self) -> u64 {
        self.costs.iter().copied().fold(0, u64::saturating_add)
    }

    /// The type of a parameter of the overload; the target is the first.
    fn parameter(&self, at: usize) -> Option<&Type> {
        self.overload?.parameters.get(at)
    }
}

fn text(of: Size) -> u64 {
    of.by(TRAVERSAL)
}

/// The cost of a pattern on a text; an empty text costs too.
fn pattern(of: Size, pattern: Size) -> u64 {
    of.plus(Size::exactly(1)).by(TRAVERSAL).saturating_mul(pattern.by(REGEX))
}

/// The cost of a call that makes a list.
fn making_list(of: Size, by: f64) -> Estimate {
    (of.by(by).saturating_add(1).saturating_add(LIST), Some(of))
}

fn literal_int(of: &Argument<'_>, otherwise: u64) -> u64 {
    match of.expression.literal() {
        Some(Value::Int(value)) => u64::try_from(*value).unwrap_or(0),
        _ => otherwise,
    }
}

impl<'e> Estimator<'e> {
    /// The cost of a call with its arguments, and the size of its result.
    pub(super) fn call_cost(&mut self, expression: &'e Expression, call: &Call<'_, 'e>) -> Estimate {
        match (call.function, call.costs) {
            ("_&&_" | "_||_", _) => return (call.of_args(), None),
            ("_?_:_", [condition, yes, no]) => {
                let sizes = (call.args[1].size.unwrap_or(Size::UNKNOWN), call.args[2].size.unwrap_or(Size::UNKNOWN));
                let entries = (self.entry_size(call.args[1].expression), self.entry_size(call.args[2].expression));
                self.set_entry_size(expression, entries.0.zip(entries.1).map(|(a, b)| a.union(b)));
                return (condition.saturating_add(*yes.max(no)), Some(sizes.0.union(sizes.1)));
            }
            _ => {}
        }
        let (cost, size) = of_list(call)
            .or_else(|| of_kubernetes(call))
            .or_else(|| self.standard(expression, call))
            .unwrap_or((1, None));
        (cost.saturating_add(call.of_args()), size)
    }

    fn standard(&mut self, expression: &'e Expression, call: &Call<'_, 'e>) -> Option<Estimate> {
        // Sizes that only a declaration knows do not count here, as upstream does not ask for them.
        let size = |of: &Argument<'_>| of.size.unwrap_or(Size::UNKNOWN);
        let is_text = |at| matches!(call.parameter(at), Some(Type::String | Type::Bytes));
        match (call.function, call.target.as_ref(), call.args) {
            ("format", Some(target), _) => Some((text(size(target)), None)),
            ("bytes", None, [arg]) if call.parameter(0) == Some(&Type::String) => {
                let of = size(arg);
                Some((text(of), Some(Size { min: of.min, max: of.max.wrapping_mul(4) })))
            }
            ("string", None, [arg]) if call.parameter(0) == Some(&Type::Bytes) => {
                let of = size(arg);
                Some((text(of), Some(Size { min: of.min / 4, max: of.max })))
            }
            ("strings.quote", None, [arg]) => {
                let of = size(arg);
                let max = of.max.wrapping_mul(2).wrapping_add(2);
                Some((text(of), Some(Size { min: of.min.wrapping_add(2), max })))
            }
            ("startsWith" | "endsWith", Some(_), [arg]) => Some((text(size(arg)), None)),
            ("@in", None, [_, list]) if matches!(call.parameter(1), Some(Type::List(_))) => {
                Some((size(list).by(1.0), None))
            }
            ("matches", Some(target), [arg]) => Some((pattern(size(target), size(arg)), None)),
            ("contains", Some(target), [arg]) => Some((text(size(target)).saturating_mul(text(size(arg))), None)),
            ("_+_", None, [a, b]) if is_text(0) || matches!(call.parameter(0), Some(Type::List(_))) => {
                let sum = size(a).plus(size(b));
                let entries = self.entry_size(a.expression).zip(self.entry_size(b.expression));
                self.set_entry_size(expression, entries.map(|(a, b)| a.union(b)));
                Some((if is_text(0) { text(sum) } else { 1 }, Some(sum)))
            }
            ("_==_" | "_!=_", None, [a, b]) => Some((factor(size(a).max.min(size(b).max), TRAVERSAL), None)),
            ("_<_" | "_<=_" | "_>_" | "_>=_", None, [a, b]) if is_text(0) => {
                Some((factor(size(a).max.min(size(b).max), TRAVERSAL), None))
            }
            _ => None,
        }
    }
}

/// Functions on lists and sets.
fn of_list(call: &Call<'_, '_>) -> Option<Estimate> {
    let squared = |of: Size, element: Option<&Type>| {
        let is_text = matches!(element, Some(Type::String | Type::Bytes));
        making_list(of.times(of), if is_text { 2.0 + TRAVERSAL } else { 2.0 })
    };
    let element = |at| match call.parameter(at) {
        Some(Type::List(element)) => Some(&**element),
        _ => None,
    };
    match (call.function, call.target.as_ref(), call.args) {
        ("slice", Some(target), [from, to]) => {
            let to = literal_int(to, target.size().max);
            Some(making_list(Size::exactly(to.wrapping_sub(literal_int(from, 0))), 1.0))
        }
        ("lists.range", None, [count]) => Some(making_list(Size::exactly(literal_int(count, u64::MAX)), 1.0)),
        ("reverse", Some(target), []) => Some(making_list(target.size(), 1.0)),
        ("flatten", Some(target), depth) => {
            let depth = depth.first().map_or(1, |depth| literal_int(depth, u64::MAX));
            Some(making_list(target.size(), depth as f64))
        }
        ("distinct", Some(target), []) => Some(squared(target.size(), None)),
        ("sort", Some(target), []) => Some(squared(target.size(), element(0))),
        ("@sortByAssociatedKeys", Some(_), [keys]) => Some(squared(keys.size(), element(1))),
        ("sets.contains" | "sets.intersects", None, [a, b]) => {
            Some((a.size().times(b.size()).by(1.0).saturating_add(1), None))
        }
        ("sets.equivalent", None, [a, b]) => Some((a.size().times(b.size()).by(2.0).saturating_add(1), None)),
        _ => None,
    }
}

/// The bytes of an address of the longer kind.
const ADDRESS: Size = Size { min: 4, max: 16 };
/// The length that upstream takes for the pattern of a named format.
const FORMAT_PATTERN: f64 = 128.0;
/// The longest name of a format.
const FORMAT_NAME: u64 = 64;
/// The most values of an attribute of a device, which `includes` goes through.
const ATTRIBUTE_VALUES: u64 = 48;

/// Kubernetes' own functions.
fn of_kubernetes(call: &Call<'_, '_>) -> Option<Estimate> {
    match (call.function, call.target.as_ref(), call.args) {
        ("includes", Some(_), _) => Some((ATTRIBUTE_VALUES, None)),
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
            Some((traversal(target), None))
        }
        ("url", None, [arg]) => Some((text(arg.size()), Some(arg.size()))),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            Some((text(target.size()), Some(target.size())))
        }
        ("replace", Some(target), [from, to, ..]) => {
            Some((target.size().by(2.0 * TRAVERSAL), Some(replaced(target.size(), from.size(), to.size()))))
        }
        ("split", Some(target), rest) => {
            let max = rest.get(1).map_or(target.size().max, |limit| match limit.expression.literal() {
                Some(Value::Int(limit)) => *limit as u64,
                _ => target.size().max,
            });
            Some((target.size().by(2.0 * TRAVERSAL), Some(Size { min: 0, max })))
        }
        ("join", Some(target), rest) => {
            let size = joined(target, rest.first());
            Some((text(size), Some(size)))
        }
        ("find" | "findAll", Some(target), [arg, ..]) => {
            Some((pattern(target.size(), arg.size()), Some(Size { min: 0, max: target.size().max })))
        }
        ("ip", Some(_), _) => Some((1, None)),
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", None, [arg, ..]) => {
            Some((text(arg.size()), None))
        }
        ("ip.isCanonical", None, [arg]) => Some((arg.size().by(2.0 * TRAVERSAL), None)),
        ("containsIP" | "containsCIDR", Some(_), [arg]) => {
            let mut cost = text(ADDRESS.plus(ADDRESS));
            if call.function == "containsCIDR" {
                cost += text(ADDRESS) + 1;
            }
            let parsing = if call.parameter(1) == Some(&Type::String) { text(arg.size()) } else { 0 };
            Some((cost.saturating_add(parsing), None))
        }
        ("validate", Some(_), [arg]) => Some((factor(text(arg.size()), FORMAT_PATTERN * REGEX), None)),
        ("_==_", None, [a, b]) if a.of == b.of => of_equality(a.of, b),
        _ => None,
    }
}

/// The cost of comparing values of Kubernetes' types.
fn of_equality(of: &Type, other: &Argument<'_>) -> Option<Estimate> {
    match of {
        Type::Named("net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver") => Some((1, None)),
        Type::Named("kubernetes.NamedFormat") => Some((factor(FORMAT_NAME, TRAVERSAL), None)),
        Type::Named("kubernetes.URL") => Some((other.size.unwrap_or(Size::exactly(1)).by(TRAVERSAL), None)),
        _ => None,
    }
}

/// The elements of a list: what their declaration says, or anything.
fn elements<'a>(list: &Argument<'a>) -> Option<(&'a Type, Size)> {
    let of = *list.of.parts().first()?;
    let declared = list.place.flatten().and_then(|declared| declared.part("@items"));
    Some((of, declared.map_or(Size::UNKNOWN, |declared| Size { min: 0, max: declared.max_size })))
}

/// The cost of going through a list or a text once.
fn traversal(of: &Argument<'_>) -> u64 {
    let Some((element, size)) = elements(of) else { return text(of.size()) };
    let each = match element {
        Type::String | Type::Bytes => text(size).saturating_add(1),
        _ => 1,
    };
    of.size().max.saturating_mul(each)
}

fn joined(list: &Argument<'_>, separator: Option<&Argument<'_>>) -> Size {
    let count = list.size();
    let size = elements(list).map_or(Size::exactly(0), |(_, element)| count.times(element));
    let Some(separator) = separator else { return size };
    let between = Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
    size.plus(separator.size().times(between))
}

/// The size of a text after parts of it were replaced.
fn replaced(of: Size, from: Size, to: Size) -> Size {
    // An empty part stands before, between and after all characters.
    let (most, kept_most) = match (from.min, to.max <= from.min) {
        (0, _) => (of.max.saturating_add(1), of.max),
        (_, true) => (0, of.max),
        (shortest, _) => ((of.max as f64 / shortest as f64).ceil() as u64, 0),
    };
    let (fewest, kept_least) = match (from.max, from.max <= to.min) {
        (0, _) => (of.min.saturating_add(1), of.min),
        (_, true) => (0, of.min),
        (longest, _) => ((of.min as f64 / longest as f64).ceil() as u64, 0),
    };
    Size { min: fewest, max: most }.times(to).plus(Size { min: kept_least, max: kept_most })
}
