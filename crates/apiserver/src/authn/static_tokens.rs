//! The static token list: upstream's `--token-auth-file`, one `token,user,uid,"group1,group2"` a line.

use std::collections::HashMap;
use std::path::Path;

use super::authenticated;
use crate::user::User;

/// Why a token list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StaticTokensError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// A line lacks fields.
    #[error("line {line} of the token list needs at least 3 fields (token, user name, user uid), found {found}")]
    Fields {
        /// Counted from 1.
        line: usize,
        /// How many fields the line has.
        found: usize,
    },
    /// A line's first field is empty.
    #[error("line {line} of the token list has an empty token")]
    EmptyToken {
        /// Counted from 1.
        line: usize,
    },
}

/// Bearer tokens with a fixed user each.
#[derive(Clone, Default)]
pub struct StaticTokens(HashMap<String, User>);

impl StaticTokens {
    /// Reads a list from a file.
    pub fn read(path: &Path) -> Result<Self, StaticTokensError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| StaticTokensError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Parses a list.
    pub fn parse(text: &str) -> Result<Self, StaticTokensError> {
        let mut tokens = HashMap::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut fields = fields(line);
            if fields.len() < 3 {
                return Err(StaticTokensError::Fields { line: at + 1, found: fields.len() });
            }
            let groups = fields.get(3).map(String::as_str).unwrap_or_default();
            let groups =
                groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
            let user = User {
                uid: std::mem::take(&mut fields[2]),
                name: std::mem::take(&mut fields[1]),
                groups,
                ..User::default()
            };
            let token = std::mem::take(&mut fields[0]);
            if token.is_empty() {
                return Err(StaticTokensError::EmptyToken { line: at + 1 });
            }
            tokens.insert(token, authenticated(user));
        }
        Ok(StaticTokens(tokens))
    }

    /// True without any token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one token.
    pub fn insert(&mut self, token: impl Into<String>, user: User) {
        self.0.insert(token.into(), authenticated(user));
    }

    pub(crate) fn find(&self, token: &str) -> Option<&User> {
        self.0.get(token)
    }
}

/// The comma-separated fields of a line. A field in double quotes may contain commas, and `""` for a quote.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.trim().chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is always a field");
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            ' ' if !quoted && field.is_empty() => {}
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_users() {
        let tokens =
            StaticTokens::parse("a,admin,admin-uid,system:masters\n\nb,bob,,\"ops, devs\"\nc,carol,3\n").unwrap();
        let groups = |token: &str| tokens.find(token).unwrap().groups.join(" ");
        assert_eq!(groups("a"), "system:masters system:authenticated");
        assert_eq!(groups("b"), "ops devs system:authenticated");
        assert_eq!(groups("c"), "system:authenticated");
        assert_eq!(tokens.find("a").unwrap().uid, "admin-uid");
        assert!(tokens.find("").is_none());
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, expected) in [
            ("a,b", "line 1 of the token list needs at least 3 fields (token, user name, user uid), found 2"),
            ("x,y,z\n,b,c", "line 2 of the token list has an empty token"),
        ] {
            assert_eq!(StaticTokens::parse(text).err().unwrap().to_string(), expected);
        }
    }
}
