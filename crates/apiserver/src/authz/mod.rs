//! Who may do what: role-based access control.
