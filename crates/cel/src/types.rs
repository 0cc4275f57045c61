//! The types of expressions, and which of them fit each other.

use std::fmt;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Known when the expression runs.
    Dyn,
    /// The same, for a value that cannot be ranged over.
    Any,
    /// What an erroneous expression has.
    Error,
    /// The type of `null`.
    Null,
    /// `true` and `false`.
    Bool,
    /// Integers.
    Int,
    /// Integers without a sign.
    Uint,
    /// Floating-point numbers.
    Double,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// Points in time.
    Timestamp,
    /// Lengths of time.
    Duration,
    /// Lists of one element type.
    List(Box<Type>),
    /// Maps from keys to values.
    Map(Box<Type>, Box<Type>),
    /// The type of a type.
    Type(Option<Box<Type>>),
    /// A value that may be absent.
    Optional(Box<Type>),
    /// A type known by its name: an object, a quantity, an address.
    Named(&'static str),
    /// A type parameter of an overload.
    Parameter(char),
    /// An unknown that unification finds.
    Variable(usize),
}

impl Type {
    /// A list of elements of this type.
    pub fn list(element: Type) -> Type {
        Type::List(Box::new(element))
    }

    /// A map.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Box::new(key), Box::new(value))
    }

    /// An optional value of this type.
    pub fn optional(value: Type) -> Type {
        Type::Optional(Box::new(value))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Type::Error
    }

    /// The types that this one is made of.
    pub(crate) fn parts(&self) -> Vec<&Type> {
        match self {
            Type::List(element) => vec![element],
            Type::Map(key, value) => vec![key, value],
            Type::Type(Some(inner)) | Type::Optional(inner) => vec![inner],
            _ => Vec::new(),
        }
    }

    /// True when the type is made of more than this many types.
    pub(crate) fn is_larger_than(&self, limit: usize) -> bool {
        fn count(of: &Type, left: &mut usize) -> bool {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            of.parts().into_iter().all(|part| count(part, left))
        }
        let mut left = limit;
        !count(self, &mut left)
    }

    /// Networks and addresses are opaque to upstream's checker; other named types are objects. Both may be null.
    fn is_nullable(&self) -> bool {
        matches!(self, Type::Named(_) | Type::Optional(_) | Type::Timestamp | Type::Duration | Type::Null)
    }

    /// True for types whose values all have the size 1.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// The type as upstream writes it where it names the result of an expression: with full names.
    pub(crate) fn full_name(&self) -> String {
        match self {
            Type::Any => "google.protobuf.Any".into(),
            Type::Null => "null_type".into(),
            Type::Timestamp => "google.protobuf.Timestamp".into(),
            Type::Duration => "google.protobuf.Duration".into(),
            Type::List(element) => format!("list({})", element.full_name()),
            Type::Map(key, value) => format!("map({}, {})", key.full_name(), value.full_name()),
            Type::Optional(inner) => format!("optional_type({})", inner.full_name()),
            Type::Type(Some(inner)) => format!("type({})", inner.full_name()),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Any => f.write_str("any"),
            Type::Error => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Type(None) => f.write_str("type"),
            Type::Type(Some(inner)) => write!(f, "type({inner})"),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Named(name) => f.write_str(name),
            Type::Parameter(name) => write!(f, "{name}"),
            Type::Variable(id) => write!(f, "_var{id}"),
        }
    }
}

/// The steps that unification may take for one expression. Types share their parts, so that a chain of bindings such as
/// `{a: a}` doubles a type with each link; 250 of them are within the limit of nesting. An honest expression takes a
/// few hundred steps, and a million take some ten milliseconds.
const STEPS_MAX: usize = 1_000_000;

/// What is known of type variables.
#[derive(Default)]
pub(crate) struct Unifier {
    bound: Vec<Option<Type>>,
    /// What to undo when an overload does not fit: variables and what they were bound to.
    trail: Vec<(usize, Option<Type>)>,
    steps: usize,
}

impl Unifier {
    /// A new variable.
    pub(crate) fn variable(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(self.bound.len() - 1)
    }

    /// True when the types were too large to be compared.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps > STEPS_MAX
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        !self.is_exhausted()
    }

    fn bind(&mut self, variable: usize, to: Type) {
        let before = self.bound[variable].replace(to);
        self.trail.push((variable, before));
    }

    /// Whether all types fit those beside them; what was bound for it stays bound.
    pub(crate) fn fit_all<'t>(&mut self, pairs: impl IntoIterator<Item = (&'t Type, &'t Type)>) -> bool {
        let mark = self.trail.len();
        let fits = pairs.into_iter().all(|(a, b)| self.fits(a, b));
        if !fits {
            while self.trail.len() > mark {
                if let Some((variable, before)) = self.trail.pop() {
                    self.bound[variable] = before;
                }
            }
        }
        fits
    }

    /// Whether a value of the first type may stand where the second is expected.
    pub(crate) fn fit(&mut self, a: &Type, b: &Type) -> bool {
        self.fit_all([(a, b)])
    }

    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Variable(variable) = b {
            let (fits, known) = self.substitutes(a, *variable);
            if fits || known {
                return fits;
            }
        }
        if let Type::Variable(variable) = a {
            return self.substitutes(b, *variable).0;
        }
        match (a, b) {
            _ if a.is_dyn_or_error() || b.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(ak, av), Type::Map(bk, bv)) => self.fits(ak, bk) && self.fits(av, bv),
            _ => a == b,
        }
    }

    /// Whether a type may stand for a variable, and whether the variable was bound before.
    fn substitutes(&mut self, to: &Type, variable: usize) -> (bool, bool) {
        if *to == Type::Variable(variable) {
            return (true, true);
        }
        if let Some(known) = self.bound[variable].clone() {
            if *to == known {
                return (true, true);
            }
            if !self.fits(to, &known) {
                return (false, true);
            }
            let general = if is_as_general(to, &known) { to.clone() } else { known };
            if !self.occurs(variable, &general) {
                self.bind(variable, general);
            }
            return (true, true);
        }
        if self.occurs(variable, to) {
            return (false, false);
        }
        self.bind(variable, to.clone());
        (true, false)
    }

    fn occurs(&mut self, variable: usize, within: &Type) -> bool {
        if !self.step() {
            return true;
        }
        match within {
            Type::Variable(other) if *other == variable => true,
            Type::Variable(other) => {
                let known = self.bound[*other].clone();
                known.is_some_and(|known| self.occurs(variable, &known))
            }
            other => other.parts().into_iter().any(|part| self.occurs(variable, part)),
        }
    }

    /// The type with everything put in that is known; what is not becomes `dyn` if asked for.
    pub(crate) fn resolve(&mut self, of: &Type, to_dyn: bool) -> Type {
        if !self.step() {
            return Type::Dyn;
        }
        match of {
            Type::Variable(variable) => match self.bound[*variable].clone() {
                Some(known) => self.resolve(&known, to_dyn),
                None if to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(element) => Type::list(self.resolve(element, to_dyn)),
            Type::Optional(inner) => Type::optional(self.resolve(inner, to_dyn)),
            Type::Map(key, value) => Type::map(self.resolve(key, to_dyn), self.resolve(value, to_dyn)),
            Type::Type(Some(inner)) => Type::Type(Some(Box::new(self.resolve(inner, to_dyn)))),
            other => other.clone(),
        }
    }

    /// The more general of two types that fit.
    pub(crate) fn join(&mut self, a: &Type, b: &Type) -> Option<Type> {
        if !self.fit(a, b) {
            return None;
        }
        Some(if is_as_general(a, b) { a.clone() } else { b.clone() })
    }
}

/// Whether the first type is equal to the second or leaves more open.
fn is_as_general(a: &Type, b: &Type) -> bool {
    match (a, b) {
        _ if a.is_dyn() || matches!(a, Type::Variable(_)) => true,
        _ if b.is_dyn() || matches!(b, Type::Variable(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_as_general(a, b),
        (Type::Map(ak, av), Type::Map(bk, bv)) => is_as_general(ak, bk) && is_as_general(av, bv),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
