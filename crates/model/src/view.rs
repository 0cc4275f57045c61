//! Declares compact views: structs of the fields that are read, decoded straight from JSON.
//!
//! Unknown fields are skipped, absent fields and `null` are the type's default, exactly as Go's decoder leaves them. A
//! view that is written leaves its defaults out, and reads back as the same view.

use serde::{Deserialize, Deserializer};

/// Decodes `null` as the default, as Go does.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// True for what a written view leaves out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares views: public structs of public fields with camelCase JSON names, all optional.
///
/// A field means what the Kubernetes API says of it; its doc line says what that does not.
macro_rules! views {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Hash, serde::Deserialize, serde::Serialize)]
        #[serde(rename_all = "camelCase", default)]
        #[allow(missing_docs, reason = "the Kubernetes API documents its fields")]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(
                    deserialize_with = "crate::view::null_as_default",
                    skip_serializing_if = "crate::view::is_default"
                )]
                pub $field: $type,
            )*
        }
    )*};
}
pub(crate) use views;

/// Lets informers key views by their metadata.
macro_rules! has_meta {
    ($($name:ident),*) => {$(
        impl crate::meta::HasMeta for $name {
            fn meta(&self) -> &crate::meta::ObjectMeta {
                &self.metadata
            }
        }
    )*};
}
pub(crate) use has_meta;
