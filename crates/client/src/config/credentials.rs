//! What identifies us in a request: fixed, read from a file, or handed out by a program.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use jiff::Timestamp;

use super::exec::{ExecPlugin, Issued};
use super::{Error, Identity};

/// A token file is read again after this long, as client-go does: the kubelet replaces tokens before they expire.
const TOKEN_FILE_INTERVAL: Duration = Duration::from_secs(60);

/// What identifies us besides a client certificate.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// Requests carry no `Authorization` header.
    #[default]
    None,
    /// A user's name and password.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Token(String),
    /// A bearer token in a file that may be replaced.
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The token to use while the file cannot be read.
        fallback: Option<String>,
    },
    /// A program that hands out tokens or certificates.
    Exec(Box<ExecPlugin>),
}

/// What identifies us in the next request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Current {
    pub(crate) authorization: Option<HeaderValue>,
    /// The certificate an exec plugin handed out.
    pub(crate) identity: Option<Identity>,
}

/// Keeps credentials current.
pub(crate) enum Authenticator {
    Fixed(Current),
    TokenFile(TokenFile),
    Exec(Exec),
}

impl Authenticator {
    pub(crate) fn new(credentials: &Credentials) -> Result<Self, Error> {
        let fixed = |authorization| Authenticator::Fixed(Current { authorization, identity: None });
        Ok(match credentials {
            Credentials::None => fixed(None),
            Credentials::Basic { username, password } => {
                let encoded = BASE64_STANDARD.encode(format!("{username}:{password}"));
                fixed(Some(header("the password", format!("Basic {encoded}"))?))
            }
            Credentials::Token(token) => fixed(Some(bearer(token)?)),
            Credentials::TokenFile { path, fallback } => {
                let fallback = fallback.as_deref().map(bearer).transpose()?;
                Authenticator::TokenFile(TokenFile { path: path.clone(), read: Mutex::new((fallback, None)) })
            }
            Credentials::Exec(plugin) => Authenticator::Exec(Exec {
                plugin: Arc::new((**plugin).clone()),
                issued: tokio::sync::Mutex::new(None),
            }),
        })
    }

    /// What identifies us now.
    pub(crate) async fn current(&self) -> Result<Current, String> {
        match self {
            Authenticator::Fixed(current) => Ok(current.clone()),
            Authenticator::TokenFile(file) => {
                Ok(Current { authorization: Some(file.current(Instant::now())?), identity: None })
            }
            Authenticator::Exec(exec) => exec.current(Timestamp::now()).await,
        }
    }

    /// The server did not accept what we showed: the next request asks the plugin again.
    pub(crate) async fn rejected(&self, shown: &Current) {
        if let Authenticator::Exec(exec) = self {
            let mut issued = exec.issued.lock().await;
            // Somebody else may have got new ones already.
            if issued.as_ref().is_some_and(|(current, _)| current.authorization == shown.authorization) {
                *issued = None;
            }
        }
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    header("the token", format!("Bearer {}", token.trim()))
}

fn header(what: &'static str, text: String) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(&text).map_err(|_| Error::Header(what))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A bearer token in a file.
pub(crate) struct TokenFile {
    path: PathBuf,
    /// The last token that could be read, and when the file was last looked at.
    read: Mutex<(Option<HeaderValue>, Option<Instant>)>,
}

impl TokenFile {
    fn current(&self, now: Instant) -> Result<HeaderValue, String> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.1.is_none_or(|at| now.duration_since(at) >= TOKEN_FILE_INTERVAL) {
            let path = self.path.display();
            let token = match std::fs::read_to_string(&self.path) {
                Ok(text) if text.trim().is_empty() => Err(format!("the token file {path} is empty")),
                Ok(text) => bearer(&text).map_err(|error| format!("the token file {path}: {error}")),
                Err(error) => Err(format!("cannot read the token file {path}: {error}")),
            };
            match (token, &read.0) {
                (Ok(token), _) => *read = (Some(token), Some(now)),
                (Err(why), Some(_)) => {
                    tracing::warn!("{why}; the token before it is used");
                    read.1 = Some(now);
                }
                (Err(why), None) => return Err(why),
            }
        }
        read.0.clone().ok_or_else(|| "there is no token".to_owned())
    }
}

/// Credentials from a program, kept until they expire.
pub(crate) struct Exec {
    plugin: Arc<ExecPlugin>,
    issued: tokio::sync::Mutex<Option<(Current, Option<Timestamp>)>>,
}

impl Exec {
    async fn current(&self, now: Timestamp) -> Result<Current, String> {
        // Held while the plugin runs: others wait for its answer instead of running it too.
        let mut issued = self.issued.lock().await;
        if let Some((current, expires)) = &*issued
            && expires.is_none_or(|at| now < at)
        {
            return Ok(current.clone());
        }
        let plugin = Arc::clone(&self.plugin);
        let run = tokio::task::spawn_blocking(move || plugin.run()).await.map_err(|error| error.to_string());
        let Issued { token, identity, expires } =
            run.flatten().map_err(|why| format!("the exec plugin {:?} failed: {why}", self.plugin.command))?;
        let authorization = token.as_deref().map(bearer).transpose().map_err(|error| error.to_string())?;
        let current = Current { authorization, identity };
        *issued = Some((current.clone(), expires));
        Ok(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator(credentials: &Credentials) -> Authenticator {
        Authenticator::new(credentials).unwrap()
    }

    async fn shown(authenticator: &Authenticator) -> String {
        let current = authenticator.current().await.unwrap();
        current.authorization.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn fixed_credentials_are_shown_as_they_are() {
        for (credentials, expected) in [
            (Credentials::None, ""),
            (Credentials::Token("t".into()), "Bearer t"),
            (Credentials::Basic { username: "u".into(), password: "p".into() }, "Basic dTpw"),
        ] {
            assert_eq!(shown(&authenticator(&credentials)).await, expected);
        }
        let error = Authenticator::new(&Credentials::Token("a\nb".into())).err().unwrap();
        assert_eq!(error.to_string(), "the token cannot be sent as an HTTP header");
    }

    #[test]
    fn a_token_file_is_read_again_after_a_minute_and_its_last_token_outlives_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let credentials = Credentials::TokenFile { path: path.clone(), fallback: None };
        let Authenticator::TokenFile(file) = authenticator(&credentials) else { panic!("it is a file") };
        let start = Instant::now();
        let missing = file.current(start).unwrap_err();
        assert_eq!(
            missing,
            format!("cannot read the token file {}: No such file or directory (os error 2)", path.display())
        );
        for (written, seconds, expected) in [
            (Some("one\n"), 0, "Bearer one"),
            (Some("two\n"), 59, "Bearer one"),
            (None, 60, "Bearer two"),
            (Some(""), 120, "Bearer two"),
            (Some("three"), 180, "Bearer three"),
        ] {
            if let Some(text) = written {
                std::fs::write(&path, text).unwrap();
            }
            assert_eq!(file.current(start + Duration::from_secs(seconds)).unwrap(), expected, "after {seconds} s");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.current(start + Duration::from_secs(240)).unwrap(), "Bearer three");
    }

    #[tokio::test]
    async fn a_plugin_runs_again_when_its_answer_expires_or_is_not_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = format!(
            r#"echo x >> {0}
            printf '{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
            printf '"status":{{"token":"%s","expirationTimestamp":"2030-01-01T00:00:00Z"}}}}' $(wc -l < {0})"#,
            runs.display()
        );
        let plugin = ExecPlugin {
            command: "sh".into(),
            args: Some(vec!["-c".into(), script]),
            api_version: "client.authentication.k8s.io/v1".into(),
            ..ExecPlugin::default()
        };
        let authenticator = authenticator(&Credentials::Exec(Box::new(plugin)));
        let Authenticator::Exec(exec) = &authenticator else { panic!("it is a plugin") };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let token = |current: Current| current.authorization.unwrap().to_str().unwrap().to_owned();
        let first = exec.current(at("2029-12-31T00:00:00Z")).await.unwrap();
        assert_eq!(token(first.clone()), "Bearer 1");
        assert_eq!(token(exec.current(at("2029-12-31T23:59:59Z")).await.unwrap()), "Bearer 1");
        let second = exec.current(at("2030-01-01T00:00:00Z")).await.unwrap();
        assert_eq!(token(second.clone()), "Bearer 2");
        // What was refused is old by now: the plugin is not asked for it again.
        authenticator.rejected(&first).await;
        assert_eq!(token(exec.current(at("2029-12-31T00:00:00Z")).await.unwrap()), "Bearer 2");
        authenticator.rejected(&second).await;
        assert_eq!(token(exec.current(at("2029-12-31T00:00:00Z")).await.unwrap()), "Bearer 3");
    }
}
