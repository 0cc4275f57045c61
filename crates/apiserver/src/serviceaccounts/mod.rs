//! Tokens of service accounts.
