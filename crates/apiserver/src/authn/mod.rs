//! Who makes a request: client certificates and bearer tokens.
