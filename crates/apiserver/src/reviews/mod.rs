//! The virtual resources that answer questions about identities and rights.
