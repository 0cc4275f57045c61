//! The cluster's own certificate authority, certificates, tokens and kubeconfigs.
