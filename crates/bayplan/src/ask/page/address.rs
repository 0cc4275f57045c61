//! Where a cluster's page is: kept in its data folder, so that a tab finds it again after a restart.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The longest file of an address that is read.
const ADDRESS_BYTES_MAX: u64 = 4096;

/// The token of a page, and the port it was last served at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) token: String,
    pub(crate) port: Option<u16>,
}

impl Address {
    /// Reads the address of an earlier run, or makes a new one. A file that is none is written anew.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let new = Address { token: random(), port: None };
        match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(new),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            Ok(about) if about.len() > ADDRESS_BYTES_MAX => return Ok(new),
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let token = value["token"].as_str().filter(|token| is_token(token)).map(str::to_owned);
        let port = value["port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        Ok(token.map_or(new, |token| Address { token, port }))
    }

    /// Writes the address into a file that only its owner may read, atomically.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let cannot = || format!("cannot write {}", path.display());
        let private = std::fs::Permissions::from_mode(0o600);
        let file = tempfile::Builder::new().prefix(".page-").permissions(private).tempfile_in(folder);
        let mut file = file.with_context(cannot)?;
        let text = json!({ "port": self.port, "token": self.token });
        file.write_all(format!("{text}\n").as_bytes()).with_context(cannot)?;
        file.persist(path).map_err(|error| error.error).with_context(cannot)?;
        Ok(())
    }
}

/// 128 random bits: nobody guesses them.
pub(crate) fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_private_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        let mut address = Address::open(&path).unwrap();
        assert_eq!(address.port, None);
        address.port = Some(4000);
        address.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Address::open(&path).unwrap(), address);
    }

    #[test]
    fn a_file_that_is_no_address_is_replaced_by_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        for text in ["", "{}", "{\"token\": \"short\", \"port\": 1}", &"x".repeat(5000)] {
            std::fs::write(&path, text).unwrap();
            let address = Address::open(&path).unwrap();
            assert!(is_token(&address.token) && address.port.is_none(), "{text:.20}");
        }
        assert_ne!(Address::open(&path).unwrap().token, Address::open(&path).unwrap().token);
    }
}
