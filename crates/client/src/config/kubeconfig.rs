//! Kubeconfig files: read, merged and resolved as client-go's `clientcmd` does.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::exec::ExecPlugin;
use super::{Config, Credentials, Error, Identity, Impersonate, Proxy, parse_server, tls};

const AUTHORITY: &str = "the kubeconfig's certificate-authority";

/// A kubeconfig, perhaps merged from several files.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Kubeconfig {
    /// The file, or the first of those that were merged.
    #[serde(skip)]
    path: PathBuf,
    #[serde(deserialize_with = "or_default")]
    current_context: String,
    #[serde(deserialize_with = "or_default")]
    contexts: Vec<NamedContext>,
    #[serde(deserialize_with = "or_default")]
    clusters: Vec<NamedCluster>,
    #[serde(deserialize_with = "or_default")]
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    #[serde(deserialize_with = "or_default")]
    cluster: String,
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    #[serde(deserialize_with = "or_default")]
    server: String,
    #[serde(deserialize_with = "or_default")]
    tls_server_name: String,
    #[serde(deserialize_with = "or_default")]
    insecure_skip_tls_verify: bool,
    #[serde(deserialize_with = "or_default")]
    certificate_authority: String,
    #[serde(deserialize_with = "or_default")]
    certificate_authority_data: String,
    #[serde(deserialize_with = "or_default")]
    proxy_url: String,
    #[serde(deserialize_with = "or_default")]
    extensions: Vec<Extension>,
}

#[derive(Debug, Deserialize)]
struct Extension {
    name: String,
    #[serde(default)]
    extension: Value,
}

/// The extension of a cluster that exec plugins are given.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

impl Cluster {
    /// The certificate authority as PEM.
    fn authority(&self) -> Result<Option<Vec<u8>>, Error> {
        material(AUTHORITY, &self.certificate_authority_data, &self.certificate_authority)
    }

    /// `ExecCredential`'s `spec.cluster`, which an exec plugin with `provideClusterInfo` gets.
    fn exec_info(&self) -> Result<Value, Error> {
        let mut info = json!({ "server": self.server });
        if !self.tls_server_name.is_empty() {
            info["tls-server-name"] = self.tls_server_name.as_str().into();
        }
        if self.insecure_skip_tls_verify {
            info["insecure-skip-tls-verify"] = true.into();
        }
        if let Some(pem) = self.authority()? {
            info["certificate-authority-data"] = BASE64_STANDARD.encode(pem).into();
        }
        let config = self.extensions.iter().find(|each| each.name == EXEC_EXTENSION);
        info["config"] = config.map_or(Value::Null, |each| each.extension.clone());
        Ok(info)
    }
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    #[serde(deserialize_with = "or_default")]
    client_certificate: String,
    #[serde(deserialize_with = "or_default")]
    client_certificate_data: String,
    #[serde(deserialize_with = "or_default")]
    client_key: String,
    #[serde(deserialize_with = "or_default")]
    client_key_data: String,
    #[serde(deserialize_with = "or_default")]
    token: String,
    #[serde(rename = "tokenFile", deserialize_with = "or_default")]
    token_file: String,
    #[serde(deserialize_with = "or_default")]
    username: String,
    #[serde(deserialize_with = "or_default")]
    password: String,
    #[serde(rename = "as", deserialize_with = "or_default")]
    impersonate: String,
    #[serde(rename = "as-uid", deserialize_with = "or_default")]
    impersonate_uid: String,
    #[serde(rename = "as-groups", deserialize_with = "or_default")]
    impersonate_groups: Vec<String>,
    #[serde(rename = "as-user-extra", deserialize_with = "or_default")]
    impersonate_extra: std::collections::BTreeMap<String, Vec<String>>,
    auth_provider: Option<AuthProvider>,
    exec: Option<ExecPlugin>,
}

#[derive(Debug, Deserialize)]
struct AuthProvider {
    #[serde(default)]
    name: String,
}

/// Decodes `null` as the default, as Go does.
fn or_default<'de, D: Deserializer<'de>, T: Default + DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads one file, which must exist.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, Error> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| Error::File { what: "the kubeconfig", path: path.to_owned(), source })?;
    parse(&text, path)
}

/// Reads and merges the files that exist; `None` when none does. What an earlier file sets stays.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Option<Kubeconfig>, Error> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let next = match read(path) {
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
            read => read?,
        };
        match &mut merged {
            Some(merged) => merged.add(next),
            None => merged = Some(next),
        }
    }
    Ok(merged)
}

fn parse(text: &str, path: &Path) -> Result<Kubeconfig, Error> {
    let wrong = |reason: String| Error::Kubeconfig { path: path.to_owned(), reason };
    // An empty file is an empty kubeconfig, as `kubectl config` makes one.
    let parsed: Option<Kubeconfig> = serde_saphyr::from_str(text).map_err(|error| wrong(reason(&error)))?;
    let mut config = parsed.unwrap_or_default();
    config.path = path.to_owned();
    // Paths in a file are relative to the file.
    let folder = path.parent().unwrap_or(Path::new(""));
    let resolve = |file: &mut String| {
        if !file.is_empty() {
            *file = folder.join(&*file).to_string_lossy().into_owned();
        }
    };
    for cluster in &mut config.clusters {
        resolve(&mut cluster.cluster.certificate_authority);
    }
    for NamedUser { user, .. } in &mut config.users {
        resolve(&mut user.client_certificate);
        resolve(&mut user.client_key);
        resolve(&mut user.token_file);
        if let Some(exec) = &mut user.exec
            && exec.command.contains('/')
        {
            resolve(&mut exec.command);
        }
    }
    Ok(config)
}

fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    match error.without_snippet() {
        serde_saphyr::Error::MultipleDocuments { .. } => {
            "the file holds more than one YAML document: a kubeconfig is the only document of its file".to_owned()
        }
        _ => first.to_owned(),
    }
}

impl Kubeconfig {
    fn add(&mut self, later: Kubeconfig) {
        if self.current_context.is_empty() {
            self.current_context = later.current_context;
        }
        for context in later.contexts {
            if !self.contexts.iter().any(|known| known.name == context.name) {
                self.contexts.push(context);
            }
        }
        for cluster in later.clusters {
            if !self.clusters.iter().any(|known| known.name == cluster.name) {
                self.clusters.push(cluster);
            }
        }
        for user in later.users {
            if !self.users.iter().any(|known| known.name == user.name) {
                self.users.push(user);
            }
        }
    }

    /// The configuration of a context; of the current one when none is given.
    pub(super) fn config(self, context: Option<&str>) -> Result<Config, Error> {
        let wrong = |reason: String| Error::Kubeconfig { path: self.path.clone(), reason };
        let name = context.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err(wrong("it has no current-context: choose one with `kubectl config use-context`".into()));
        }
        let absent = |kind: &str, name: &str| wrong(format!("there is no {kind} {name:?} in it"));
        let context = self.contexts.iter().find(|each| each.name == name);
        let Context { cluster: at, user, namespace } = &context.ok_or_else(|| absent("context", name))?.context;
        let cluster = self.clusters.iter().find(|each| each.name == *at);
        let cluster = &cluster.ok_or_else(|| absent("cluster", at))?.cluster;
        let no_user = User::default();
        let user = match user.as_str() {
            "" => &no_user,
            name => &self.users.iter().find(|each| each.name == name).ok_or_else(|| absent("user", name))?.user,
        };
        let mut config = cluster_config(cluster)?;
        config.tls.identity = user.identity()?;
        config.credentials = user.credentials(cluster, &wrong)?;
        config.impersonate = user.impersonate();
        config.namespace = namespace.clone();
        Ok(config)
    }
}

fn cluster_config(cluster: &Cluster) -> Result<Config, Error> {
    let mut config = Config::new(parse_server(&cluster.server)?);
    if !cluster.proxy_url.is_empty() {
        config.proxy = Some(Proxy::parse("the kubeconfig", &cluster.proxy_url)?);
    }
    config.tls.insecure = cluster.insecure_skip_tls_verify;
    if let Some(pem) = cluster.authority()? {
        if config.tls.insecure {
            let reason = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(Error::Certificate { what: AUTHORITY.into(), reason: reason.into() });
        }
        config.tls.authorities = Some(tls::certificates(AUTHORITY, &pem)?);
    }
    if !cluster.tls_server_name.is_empty() {
        let name = cluster.tls_server_name.clone();
        config.tls.server_name = Some(ServerName::try_from(name.clone()).map_err(|_| Error::ServerName(name))?);
    }
    Ok(config)
}

impl User {
    fn identity(&self) -> Result<Option<Identity>, Error> {
        let certificate =
            material("the kubeconfig's client-certificate", &self.client_certificate_data, &self.client_certificate)?;
        let key = material("the kubeconfig's client-key", &self.client_key_data, &self.client_key)?;
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => {
                Identity::from_pem("the kubeconfig's client-certificate", &certificate, &key).map(Some)
            }
            (certificate, _) => {
                let (there, missing) = match certificate {
                    Some(_) => ("client-certificate", "client-key"),
                    None => ("client-key", "client-certificate"),
                };
                let reason = format!("its {missing} is missing");
                Err(Error::Certificate { what: format!("the kubeconfig's {there}"), reason })
            }
        }
    }

    fn credentials(&self, cluster: &Cluster, wrong: &dyn Fn(String) -> Error) -> Result<Credentials, Error> {
        if let Some(AuthProvider { name }) = &self.auth_provider {
            let reason =
                format!("its user needs the auth-provider {name:?}, which is not supported: use an exec plugin");
            return Err(wrong(reason));
        }
        if let Some(exec) = &self.exec {
            let mut exec = exec.clone();
            exec.check().map_err(wrong)?;
            exec.cluster = if exec.provide_cluster_info { Some(cluster.exec_info()?) } else { None };
            return Ok(Credentials::Exec(Box::new(exec)));
        }
        if !self.token_file.is_empty() {
            let fallback = Some(self.token.clone()).filter(|token| !token.is_empty());
            return Ok(Credentials::TokenFile { path: self.token_file.clone().into(), fallback });
        }
        if !self.token.is_empty() {
            return Ok(Credentials::Token(self.token.clone()));
        }
        if !self.username.is_empty() || !self.password.is_empty() {
            return Ok(Credentials::Basic { username: self.username.clone(), password: self.password.clone() });
        }
        Ok(Credentials::None)
    }

    fn impersonate(&self) -> Impersonate {
        Impersonate {
            user: self.impersonate.clone(),
            uid: self.impersonate_uid.clone(),
            groups: self.impersonate_groups.clone(),
            extra: self.impersonate_extra.clone().into_iter().collect(),
        }
    }
}

/// Bytes given in the file itself or in another; what is in the file itself wins.
fn material(what: &'static str, data: &str, file: &str) -> Result<Option<Vec<u8>>, Error> {
    match (data, file) {
        ("", "") => Ok(None),
        ("", file) => {
            let path = PathBuf::from(file);
            std::fs::read(&path).map(Some).map_err(|source| Error::File { what, path, source })
        }
        (data, _) => {
            let compact: String = data.split_whitespace().collect();
            let wrong = |error: base64::DecodeError| Error::Certificate {
                what: format!("{what}-data"),
                reason: format!("it is not base64: {error}"),
            };
            BASE64_STANDARD.decode(compact).map(Some).map_err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/etc/kubernetes/config";

    fn load(text: &str, context: Option<&str>) -> Result<Config, String> {
        let parsed = parse(text, Path::new(PATH)).map_err(|error| error.to_string())?;
        parsed.config(context).map_err(|error| error.to_string())
    }

    /// A file with one cluster, one user and one context, each called `a`.
    fn file(cluster: &str, user: &str) -> String {
        format!(
            "clusters: [{{name: a, cluster: {{server: https://a.example, {cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n"
        )
    }

    #[test]
    fn a_users_credentials_are_found_in_client_gos_order() {
        for (user, expected) in [
            ("", "None"),
            ("token: t", r#"Token("t")"#),
            ("username: u, password: p", r#"Basic { username: "u", password: "p" }"#),
            ("tokenFile: tokens/t", r#"TokenFile { path: "/etc/kubernetes/tokens/t", fallback: None }"#),
            ("token: t, tokenFile: /t", r#"TokenFile { path: "/t", fallback: Some("t") }"#),
        ] {
            let config = load(&file("", user), None).unwrap();
            assert_eq!(format!("{:?}", config.credentials), expected, "{user}");
        }
        let config = load(&file("", "as: root, as-groups: [ops], as-user-extra: {scope: [all]}, as-uid: '7'"), None);
        let Impersonate { user, uid, groups, extra } = config.unwrap().impersonate;
        assert_eq!(
            (&*user, &*uid, groups, extra),
            ("root", "7", vec!["ops".into()], vec![("scope".into(), vec!["all".into()])])
        );
    }

    #[test]
    fn a_cluster_says_where_it_is_and_whom_to_trust() {
        let config = load(&file("tls-server-name: kubernetes, insecure-skip-tls-verify: true", ""), None).unwrap();
        assert_eq!(config.server, "https://a.example/");
        assert!(config.tls.insecure && config.tls.authorities.is_none());
        assert_eq!(config.tls.server_name, Some(ServerName::try_from("kubernetes").unwrap()));
    }

    #[test]
    fn a_file_may_begin_with_a_separator_and_may_leave_things_empty() {
        let text = format!("---\n{}", file("", "").replace("user: {}", "user: null"));
        assert!(load(&text, None).is_ok());
        assert!(load(&file("", "").replace("user: a}", "user: ''}"), None).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_in_plain_words() {
        let wrong = |reason: &str| format!("the kubeconfig {PATH} cannot be used: {reason}");
        let documents = "the file holds more than one YAML document: a kubeconfig is the only document of its file";
        let twice = format!("{0}---\n{0}", file("", ""));
        for (text, context, expected) in [
            ("", None, wrong("it has no current-context: choose one with `kubectl config use-context`")),
            (&*file("", ""), Some("b"), wrong("there is no context \"b\" in it")),
            (&file("", "").replace("cluster: a,", "cluster: b,"), None, wrong("there is no cluster \"b\" in it")),
            (&file("", "").replace("user: a}", "user: b}"), None, wrong("there is no user \"b\" in it")),
            (&twice, None, wrong(documents)),
            (
                &file("", "auth-provider: {name: gcp}"),
                None,
                wrong("its user needs the auth-provider \"gcp\", which is not supported: use an exec plugin"),
            ),
            (
                &file("proxy-url: ftp://127.0.0.1:3128", ""),
                None,
                "the kubeconfig names the proxy ftp://127.0.0.1:3128, which cannot be used: its scheme is none of \
                 http, https and socks5"
                    .into(),
            ),
            (
                &file("tls-server-name: not a name", ""),
                None,
                r#"the kubeconfig's tls-server-name "not a name" is neither a DNS name nor an address"#.into(),
            ),
            (
                &file("certificate-authority: ca.crt", ""),
                None,
                "cannot read the kubeconfig's certificate-authority /etc/kubernetes/ca.crt: No such file or directory \
                 (os error 2)"
                    .into(),
            ),
            (
                &file("certificate-authority-data: '*'", ""),
                None,
                "the kubeconfig's certificate-authority-data cannot be used: it is not base64: Invalid symbol 42, \
                 offset 0."
                    .into(),
            ),
            (
                &file("certificate-authority-data: aGVsbG8=", ""),
                None,
                "the kubeconfig's certificate-authority cannot be used: there is no certificate in it".into(),
            ),
            (
                &file("", "client-key-data: aGVsbG8="),
                None,
                "the kubeconfig's client-key cannot be used: its client-certificate is missing".into(),
            ),
        ] {
            assert_eq!(load(text, context).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn what_an_earlier_file_sets_stays() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = write("first", "users: [{name: a, user: {tokenFile: token}}]\n");
        let second = write("second", &file("", "token: second").replace("a.example", "second.example"));
        let third = write("third", &file("", "").replace("a.example", "third.example"));
        let merged = read_all(&[first, folder.path().join("missing"), second, third]).unwrap().unwrap();
        let config = merged.config(None).unwrap();
        assert_eq!(config.server, "https://second.example/");
        let Credentials::TokenFile { path, .. } = config.credentials else { panic!("{:?}", config.credentials) };
        assert_eq!(path, folder.path().join("token"));
        assert!(read_all(&[folder.path().join("missing")]).unwrap().is_none());
    }
}
