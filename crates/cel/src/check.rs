//! Checks the types of an expression, and finds the overloads that its calls mean.

use std::borrow::Cow;

use crate::ast::{Entry, Expression, Id, Loop, Node};
use crate::declarations::{Environment, Function, Overload, named_type};
use crate::parse::Parsed;
use crate::source::Fault;
use crate::types::{Type, Unifier};

/// The most types that one type may be made of. Nobody writes a list of lists of lists a thousand deep.
const TYPE_SIZE_MAX: usize = 1000;

/// What the checker found out, by the ids of nodes.
pub(crate) struct Checked {
    pub(crate) expression: Expression,
    pub(crate) types: Vec<Type>,
    /// The overloads that a call may mean: more than one when the types of its arguments are known late.
    pub(crate) overloads: Vec<Vec<&'static Overload>>,
}

impl Checked {
    pub(crate) fn type_of(&self, expression: &Expression) -> &Type {
        &self.types[expression.id]
    }
}

/// Checks an expression.
pub(crate) fn check(parsed: Parsed, environment: &Environment) -> Result<(Checked, Vec<usize>), Vec<Fault>> {
    let Parsed { mut expression, positions } = parsed;
    let count = positions.len();
    let mut checker = Checker {
        environment,
        positions,
        unifier: Unifier::default(),
        scope: Vec::new(),
        types: vec![Type::Error; count],
        overloads: vec![Vec::new(); count],
        faults: Vec::new(),
        is_too_large: false,
    };
    checker.check(&mut expression);
    if checker.is_too_large || checker.unifier.is_exhausted() {
        return Err(vec![Fault::of_all("the types of the expression are too large")]);
    }
    if !checker.faults.is_empty() {
        return Err(checker.faults);
    }
    let Checker { types, overloads, mut unifier, positions, .. } = checker;
    let types = types.iter().map(|of| unifier.resolve(of, true)).collect();
    if unifier.is_exhausted() {
        return Err(vec![Fault::of_all("the types of the expression are too large")]);
    }
    Ok((Checked { expression, types, overloads }, positions))
}

struct Checker<'e> {
    environment: &'e Environment,
    positions: Vec<usize>,
    unifier: Unifier,
    /// Variables of loops, innermost last.
    scope: Vec<(String, Type)>,
    types: Vec<Type>,
    overloads: Vec<Vec<&'static Overload>>,
    faults: Vec<Fault>,
    is_too_large: bool,
}

impl Checker<'_> {
    fn fault(&mut self, id: Id, message: impl Into<String>) {
        self.faults.push(Fault::new(self.positions[id], message));
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.fault(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn set(&mut self, id: Id, of: Type) {
        if of.is_larger_than(TYPE_SIZE_MAX) {
            self.is_too_large = true;
            return;
        }
        self.types[id] = of;
    }

    fn type_of(&self, expression: &Expression) -> Type {
        self.types[expression.id].clone()
    }

    fn check(&mut self, expression: &mut Expression) {
        if self.is_too_large {
            return;
        }
        let id = expression.id;
        let dotted = expression.dotted_name();
        match &mut expression.node {
            Node::Literal(value) => {
                let of = value.literal_type();
                self.set(id, of);
            }
            Node::Ident(name) => {
                let name = name.trim_start_matches('.').to_owned();
                match self.lookup(&name) {
                    Some(of) => self.set(id, of),
                    None => self.undeclared(id, &name),
                }
            }
            Node::Select { operand, field, test } => {
                // A dotted name may be one declared name.
                if !*test && let Some(name) = dotted.filter(|name| named_type(name).is_some()) {
                    let of = self.lookup(&name).unwrap_or(Type::Error);
                    expression.node = Node::Ident(name.into());
                    return self.set(id, of);
                }
                let (field, test) = (field.clone(), *test);
                self.check(operand);
                let of = self.type_of(operand);
                let of = self.field(id, &of, &field, false);
                self.set(id, if test { Type::Bool } else { of });
            }
            Node::Call { .. } => self.call(expression),
            Node::List { items, optional } => self.list(id, items, optional),
            Node::Map(entries) => self.map(id, entries),
            Node::Message(name) => {
                let name = name.clone();
                self.undeclared(id, &name);
            }
            Node::Loop(of) => self.run(id, of),
        }
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        let local = self.scope.iter().rev().find(|(variable, _)| variable == name).map(|(_, of)| of.clone());
        local
            .or_else(|| self.environment.variable(name).map(|declared| declared.of.clone()))
            .or_else(|| named_type(name).map(|of| Type::Type(Some(Box::new(of)))))
    }

    /// The type of a field.
    fn field(&mut self, id: Id, of: &Type, field: &str, optional: bool) -> Type {
        let of = self.unifier.resolve(of, false);
        let (of, is_optional) = match of {
            Type::Optional(inner) => (*inner, true),
            other => (other, false),
        };
        let result = match &of {
            Type::Map(_, value) => (**value).clone(),
            Type::Named(name) if self.environment.fields(name).is_some() => {
                let fields = self.environment.fields(name).unwrap_or_default();
                match fields.iter().find(|(known, _)| *known == field) {
                    Some((_, declared)) => declared.of.clone(),
                    None => {
                        self.fault(id, format!("undefined field '{field}'"));
                        Type::Error
                    }
                }
            }
            Type::Named(_) => {
                self.fault(id, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Variable(_) => {
                self.unifier.fit(&Type::Dyn, &of);
                Type::Dyn
            }
            _ => {
                if !of.is_dyn_or_error() {
                    self.fault(id, format!("type '{of}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, expression: &mut Expression) {
        let id = expression.id;
        let Node::Call { target, function, args } = &mut expression.node else { return };
        if function == "_?._" {
            self.check(&mut args[0]);
            let (of, field) =
                (self.type_of(&args[0]), args[1].literal().and_then(|value| value.as_str().map(str::to_owned)));
            self.set(args[1].id, Type::String);
            let of = self.field(id, &of, &field.unwrap_or_default(), true);
            return self.set(id, of);
        }
        args.iter_mut().for_each(|arg| self.check(arg));
        if let Some(namespace) = target.as_ref().and_then(|target| target.dotted_name())
            && let Some(found) = self.environment.function(&format!("{}.{function}", namespace.trim_start_matches('.')))
        {
            // The target is a namespace, not a value.
            *target = None;
            *function = Cow::Borrowed(found.name);
            return self.resolve_call(id, found, None, args);
        }
        if let Some(target) = target {
            self.check(target);
        }
        match self.environment.function(function.trim_start_matches('.')) {
            Some(found) => {
                *function = Cow::Borrowed(found.name);
                self.resolve_call(id, found, target.as_deref(), args);
            }
            None => {
                let name = function.trim_start_matches('.').to_owned();
                self.undeclared(id, &name);
            }
        }
    }

    fn resolve_call(&mut self, id: Id, function: &'static Function, target: Option<&Expression>, args: &[Expression]) {
        if matches!(function.name, "_&&_" | "_||_") {
            return self.logic(id, function, args);
        }
        let given: Vec<Type> = target.into_iter().chain(args).map(|arg| self.type_of(arg)).collect();
        let mut result: Option<Type> = None;
        for overload in function.overloads.iter().filter(|overload| overload.has_target == target.is_some()) {
            let variables: Vec<(char, Type)> =
                overload.generics.iter().map(|name| (*name, self.unifier.variable())).collect();
            let wanted: Vec<Type> = overload.parameters.iter().map(|of| instantiate(of, &variables)).collect();
            if wanted.len() != given.len() || !self.unifier.fit_all(given.iter().zip(&wanted)) {
                continue;
            }
            self.overloads[id].push(overload);
            let of = self.unifier.resolve(&instantiate(&overload.result, &variables), false);
            result = Some(match result {
                None => of,
                Some(before) if before.is_dyn() || before == of => before,
                Some(_) => Type::Dyn,
            });
        }
        if let Some(result) = result {
            return self.set(id, result);
        }
        let given: Vec<String> = given.iter().map(|of| self.unifier.resolve(of, true).to_string()).collect();
        let signature = match (target, given.split_first()) {
            (Some(_), Some((target, rest))) => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", given.join(", ")),
        };
        self.fault(id, format!("found no matching overload for '{}' applied to '{signature}'", function.name));
    }

    fn logic(&mut self, id: Id, function: &'static Function, args: &[Expression]) {
        let mut fits = true;
        for arg in args {
            let of = self.type_of(arg);
            if !self.unifier.fit(&of, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, &of);
                fits = false;
            }
        }
        if fits {
            self.overloads[id].extend(function.overloads.first());
            self.set(id, Type::Bool);
        }
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.fault(id, format!("expected type '{expected}' but found '{found}'"));
    }

    /// The type of an element that is left out when it is absent.
    fn unwrapped(&mut self, of: Type, optional: bool, id: Id) -> Type {
        match of {
            Type::Optional(inner) if optional => *inner,
            of => {
                if optional && !of.is_dyn() {
                    self.mismatch(id, &Type::optional(of.clone()), &of);
                }
                of
            }
        }
    }

    fn join(&mut self, before: Option<Type>, of: Type) -> Type {
        let Some(before) = before else { return of };
        self.unifier.join(&before, &of).unwrap_or(Type::Dyn)
    }

    fn list(&mut self, id: Id, items: &mut [Expression], optional: &[usize]) {
        let mut element = None;
        for (i, item) in items.iter_mut().enumerate() {
            self.check(item);
            let of = self.type_of(item);
            let of = self.unwrapped(of, optional.contains(&i), item.id);
            element = Some(self.join(element, of));
        }
        let element = element.unwrap_or_else(|| self.unifier.variable());
        self.set(id, Type::list(element));
    }

    fn map(&mut self, id: Id, entries: &mut [Entry]) {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            self.check(&mut entry.key);
            let of = self.type_of(&entry.key);
            key = Some(self.join(key, of));
            self.check(&mut entry.value);
            let of = self.type_of(&entry.value);
            let of = self.unwrapped(of, entry.optional, entry.value.id);
            value = Some(self.join(value, of));
        }
        let key = key.unwrap_or_else(|| self.unifier.variable());
        let value = value.unwrap_or_else(|| self.unifier.variable());
        self.set(id, Type::map(key, value));
    }

    fn run(&mut self, id: Id, of: &mut Loop) {
        self.check(&mut of.range);
        self.check(&mut of.init);
        let range = self.type_of(&of.range);
        let range = self.unifier.resolve(&range, false);
        let accumulated = self.type_of(&of.init);
        let pairs = of.value_variable.is_some();
        let (first, second) = match range {
            Type::List(element) if pairs => (Type::Int, *element),
            Type::List(element) => (*element, Type::Error),
            Type::Map(key, value) => (*key, *value),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.unifier.fit(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                self.fault(
                    of.range.id,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension \
                         (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let outer = self.scope.len();
        self.scope.push((of.accumulator.clone(), accumulated.clone()));
        self.scope.push((of.variable.clone(), first));
        self.scope.extend(of.value_variable.iter().map(|name| (name.clone(), second.clone())));
        self.check(&mut of.condition);
        self.expect(&of.condition, &Type::Bool);
        self.check(&mut of.step);
        self.expect(&of.step, &accumulated);
        self.scope.truncate(outer + 1);
        self.check(&mut of.result);
        self.scope.truncate(outer);
        let result = self.type_of(&of.result);
        let result = self.unifier.resolve(&result, false);
        self.set(id, result);
    }

    fn expect(&mut self, expression: &Expression, expected: &Type) {
        let found = self.type_of(expression);
        if !self.unifier.fit(expected, &found) {
            self.mismatch(expression.id, expected, &found);
        }
    }
}

/// A type of an overload with variables for its parameters.
fn instantiate(of: &Type, variables: &[(char, Type)]) -> Type {
    match of {
        Type::Parameter(name) => {
            variables.iter().find(|(known, _)| known == name).map_or(Type::Error, |(_, variable)| variable.clone())
        }
        Type::List(element) => Type::list(instantiate(element, variables)),
        Type::Optional(inner) => Type::optional(instantiate(inner, variables)),
        Type::Map(key, value) => Type::map(instantiate(key, variables), instantiate(value, variables)),
        Type::Type(Some(inner)) => Type::Type(Some(Box::new(instantiate(inner, variables)))),
        other => other.clone(),
    }
}
