//! The static token list: upstream's `--token-auth-file`, one `token,user,uid,"group1,group2"` a line.

use std::collections::HashMap;
use std::path::Path;

use super::authenticated;
use crate::user::User;

/// Why a token list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {source}", path.display())]
    Read {
        /// Which file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line lacks fields.
    #[error("line {line} of the token list needs at least 3 fields (token, user name, user uid), found {found}")]
    Fields {
        /// Counted from 1.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A line's first field is empty.
    #[error("line {line} of the token list has an empty token")]
    EmptyToken {
        /// Counted from 1.
        line: usize,
    },
}

/// Known tokens and their users.
#[derive(Clone, Default)]
pub struct StaticTokens(HashMap<String, User>);

impl StaticTokens {
    /// Reads a list from a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Reads a list.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut tokens = HashMap::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut fields = fields(line);
            if fields.len() < 3 {
                return Err(Error::Fields { line: at + 1, found: fields.len() });
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
                return Err(Error::EmptyToken { line: at + 1 });
            }
            tokens.insert(token, authenticated(user));
        }
        Ok(StaticTokens(tokens))
    }

    /// Adds one token.
    pub fn insert(&mut self, token: impl Into<String>, user: User) {
        self.0.insert(token.into(), authenticated(user));
    }

    /// The user of a token.
    pub fn find(&self, token: &str) -> Option<&User> {
        self.0.get(token)
    }
}

/// The comma-separated fields of a line; a field in double quotes may hold commas, and `""` for a quote.
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
