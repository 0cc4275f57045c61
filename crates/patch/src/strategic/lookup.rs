//! Looks up in the schema how a field is merged.

use bayplan_model::schema::{PatchStrategy, Type};

use super::Error;

/// A field, or an entry of a map, or for lists its elements.
pub(super) struct Member<'a> {
    pub(super) ty: &'a Type,
    pub(super) strategy: PatchStrategy,
    /// Empty where the type names none.
    pub(super) merge_key: &'static str,
}

/// What the field of a value of this type is.
pub(super) fn member<'a>(ty: &'a Type, field: &str) -> Result<Member<'a>, Error> {
    if let Type::Map(element, _) = ty {
        return Ok(Member { ty: element, strategy: PatchStrategy::Default, merge_key: "" });
    }
    let Some(definition) = ty.object() else {
        return Err(match opaque_struct(ty) {
            Some(structure) => Error::UnknownField { structure, field: field.into() },
            None => Error::NotAStruct(kind(ty)),
        });
    };
    // Go finds fields whatever their case, but prefers the exact name.
    let any_case = || definition.fields.iter().find(|own| own.name.eq_ignore_ascii_case(field));
    let found = definition.field(field).or_else(any_case);
    let found = found.ok_or_else(|| Error::UnknownField { structure: definition.short_name(), field: field.into() })?;
    Ok(Member { ty: &found.ty, strategy: found.patch_strategy, merge_key: found.patch_merge_key.unwrap_or_default() })
}

/// What the elements of a list field are.
pub(super) fn list<'a>(ty: &'a Type, field: &str) -> Result<Member<'a>, Error> {
    let member = member(ty, field)?;
    match member.ty {
        Type::List(element, _) if matches!(**element, Type::List(..) | Type::Bytes) => Err(Error::ListOfListsType),
        Type::List(element, _) => Ok(Member { ty: element, ..member }),
        Type::Bytes => Ok(member),
        _ => Err(Error::NotAList(kind(ty))),
    }
}

/// Go's name for what kind of type it is.
pub(super) fn kind(ty: &Type) -> &'static str {
    match ty {
        Type::String(_) => "string",
        Type::Bytes | Type::List(..) => "slice",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Double => "float64",
        Type::Boolean => "bool",
        Type::Map(..) => "map",
        _ => "struct",
    }
}

/// Structs whose fields are their own business.
fn opaque_struct(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::Quantity => Some("Quantity"),
        Type::IntOrString => Some("IntOrString"),
        Type::Time => Some("Time"),
        Type::MicroTime => Some("MicroTime"),
        Type::Raw | Type::Fields => Some("RawExtension"),
        _ => None,
    }
}
