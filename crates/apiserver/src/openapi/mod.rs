//! The schemas of everything served.
