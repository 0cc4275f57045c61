//! What the schema says about the ownership of a value: as a whole, by field, or by item.

use bayplan_model::schema::{Definition, Field, ListType, MapType, PatchStrategy, Type};

/// A type, with what the field says that holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// Owned as a whole.
    pub(crate) atomic: bool,
}

/// What a value is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Text.
    Text,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A scalar of any kind: quantities, times, numbers or text.
    Scalar,
    /// Named fields.
    Struct(&'static Definition),
    /// Fields of any name.
    Map(&'static Type),
    /// Items; found by their keys, or by their values if there are none.
    List { element: &'static Type, keys: &'static [&'static str] },
    /// Anything: maps by field, the rest as a whole.
    Any,
}

impl Shape {
    /// The shape of a type in a field, or in a list or map.
    pub(crate) fn of(ty: &'static Type, field: Option<&'static Field>) -> Shape {
        let map_type = field.and_then(|field| field.map_type);
        let (kind, atomic) = match ty {
            Type::String(_) | Type::Bytes => (Kind::Text, true),
            Type::Int32 | Type::Int64 | Type::Double => (Kind::Number, true),
            Type::Boolean => (Kind::Boolean, true),
            Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime => (Kind::Scalar, true),
            Type::Map(element, _) => (Kind::Map(element), map_type == Some(MapType::Atomic)),
            Type::List(element, _) => {
                let keys = field.and_then(keys);
                (Kind::List { element, keys: keys.unwrap_or_default() }, keys.is_none())
            }
            Type::Object(_) => {
                return ty.object().map_or(Shape::ANY, |definition| Shape::of_object(definition, map_type));
            }
            Type::Raw | Type::Fields => (Kind::Any, true),
        };
        Shape { kind, atomic }
    }

    /// The shape of a whole object.
    pub(crate) fn of_definition(definition: &'static Definition) -> Shape {
        Shape::of_object(definition, None)
    }

    const ANY: Shape = Shape { kind: Kind::Any, atomic: false };

    fn of_object(definition: &'static Definition, map_type: Option<MapType>) -> Shape {
        if definition.shape != Type::Object(definition.id) {
            return Shape::of(&definition.shape, None);
        }
        let atomic = map_type.or(definition.map_type) == Some(MapType::Atomic);
        let kind = if definition.fields.is_empty() { Kind::Any } else { Kind::Struct(definition) };
        Shape { kind, atomic }
    }

    /// The shape of a field of a struct or map; `None` for one that the schema does not have.
    pub(crate) fn child(self, name: &str) -> Option<Shape> {
        match self.kind {
            Kind::Struct(definition) => definition.field(name).map(|field| Shape::of(&field.ty, Some(field))),
            Kind::Map(element) => Some(Shape::of(element, None)),
            Kind::Any => Some(self),
            _ => None,
        }
    }

    /// True for a value that is owned as a whole whatever it holds.
    pub(crate) fn is_leaf(self) -> bool {
        self.atomic || matches!(self.kind, Kind::Text | Kind::Number | Kind::Boolean | Kind::Scalar)
    }
}

/// The keys of a list that is owned by item, none for sets; `None` for lists that are owned as a whole.
fn keys(field: &'static Field) -> Option<&'static [&'static str]> {
    match field.list_type {
        Some(ListType::Map) => Some(&field.list_map_keys),
        Some(ListType::Set) => Some(&[]),
        Some(ListType::Atomic) => None,
        None if matches!(field.patch_strategy, PatchStrategy::Merge | PatchStrategy::MergeRetainKeys) => {
            Some(field.patch_merge_key.as_slice())
        }
        None => None,
    }
}
