//! Exec plugins: programs that hand out credentials, as client-go's `exec` authenticator runs them.

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Identity;

/// The versions of the protocol that are spoken.
const API_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// The program of a kubeconfig's user, and how to run it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecPlugin {
    /// The program, on the `PATH` unless it is a path.
    pub command: String,
    /// Arguments of the program.
    pub args: Option<Vec<String>>,
    /// Variables it gets besides ours.
    pub env: Option<Vec<EnvironmentVariable>>,
    /// The version of the protocol it speaks.
    pub api_version: String,
    /// What to tell a user who does not have the program.
    pub install_hint: Option<String>,
    /// Whether the program gets a description of the cluster (`KUBERNETES_EXEC_INFO`).
    pub provide_cluster_info: bool,
    /// Whether it may ask the user.
    pub interactive_mode: InteractiveMode,
    /// Description of the cluster, if `provide_cluster_info` asks for it.
    #[serde(skip)]
    pub cluster: Option<Value>,
}

/// A variable of the program's environment.
#[derive(Clone, Debug, Deserialize)]
pub struct EnvironmentVariable {
    /// The variable's name.
    pub name: String,
    /// The variable's value.
    pub value: String,
}

/// Whether an exec plugin may use standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum InteractiveMode {
    /// Never.
    Never,
    /// If it is a terminal.
    #[default]
    IfAvailable,
    /// The plugin cannot do without.
    Always,
}

/// What a plugin handed out.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    pub(super) identity: Option<Identity>,
    /// When to run the plugin again; until then its answer holds.
    pub(super) expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl ExecPlugin {
    /// Refuses what no run could make work.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.command.is_empty() {
            return Err("its user's exec has no command".into());
        }
        match self.api_version.as_str() {
            version if API_VERSIONS.contains(&version) => Ok(()),
            version => {
                let known = API_VERSIONS.join(" and ");
                Err(format!("its user's exec speaks {version:?}, which is not supported: {known} are"))
            }
        }
    }

    /// Runs the program and waits for its answer.
    pub(super) fn run(&self) -> Result<Issued, String> {
        let interactive = match self.interactive_mode {
            InteractiveMode::Never => false,
            InteractiveMode::IfAvailable => std::io::stdin().is_terminal(),
            InteractiveMode::Always if std::io::stdin().is_terminal() => true,
            InteractiveMode::Always => {
                return Err("it wants to ask the user, and standard input is not a terminal".into());
            }
        };
        let mut spec = json!({ "interactive": interactive });
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({ "kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec });
        let mut command = Command::new(&self.command);
        command.args(self.args.iter().flatten());
        command.envs(self.env.iter().flatten().map(|variable| (&variable.name, &variable.value)));
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() }).stderr(Stdio::inherit());
        let output = command.output().map_err(|error| match &self.install_hint {
            Some(hint) if error.kind() == std::io::ErrorKind::NotFound => format!("{error}: {}", hint.trim()),
            _ => error.to_string(),
        })?;
        if !output.status.success() {
            return Err(format!("it ended with {}", output.status));
        }
        self.read(&output.stdout)
    }

    fn read(&self, answer: &[u8]) -> Result<Issued, String> {
        let credential: ExecCredential =
            serde_json::from_slice(answer).map_err(|error| format!("its answer is not an ExecCredential: {error}"))?;
        if credential.kind != "ExecCredential" || credential.api_version != self.api_version {
            let (found, version) = (&credential.api_version, &self.api_version);
            return Err(format!("it answered with {found} {}, not with {version} ExecCredential", credential.kind));
        }
        let status = credential.status.ok_or("its answer has no status")?;
        let text = |field: Option<String>| field.filter(|text| !text.is_empty());
        let identity = match (text(status.client_certificate_data), text(status.client_key_data)) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let identity = Identity::from_pem("its certificate", certificate.as_bytes(), key.as_bytes());
                Some(identity.map_err(|error| error.to_string())?)
            }
            _ => return Err("its answer has a certificate without a key, or a key without a certificate".into()),
        };
        let token = text(status.token);
        if token.is_none() && identity.is_none() {
            return Err("its answer has neither a token nor a certificate".into());
        }
        Ok(Issued { token, identity, expires: status.expiration_timestamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> ExecPlugin {
        ExecPlugin {
            command: "sh".into(),
            args: Some(vec!["-c".into(), script.into()]),
            api_version: API_VERSIONS[0].into(),
            interactive_mode: InteractiveMode::Never,
            ..ExecPlugin::default()
        }
    }

    fn answer(status: &str) -> String {
        format!(
            r#"echo '{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{status}}}'"#
        )
    }

    #[test]
    fn a_plugin_is_told_what_it_asked_for_and_hands_out_a_token() {
        let mut plugin = plugin(
            r#"token=$(printf '%s' "$KUBERNETES_EXEC_INFO$ZONE" | tr -d '"{}')
            printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
            printf '"status":{"token":"%s","expirationTimestamp":"2026-11-17T12:00:00Z"}}' "$token""#,
        );
        plugin.cluster = Some(json!({ "server": "https://a.example" }));
        plugin.env = Some(vec![EnvironmentVariable { name: "ZONE".into(), value: ",zone-1".into() }]);
        let issued = plugin.run().unwrap();
        assert_eq!(
            issued.token.unwrap(),
            "apiVersion:client.authentication.k8s.io/v1,kind:ExecCredential,spec:cluster:server:https://a.example,\
             interactive:false,zone-1"
        );
        assert_eq!(issued.expires.unwrap().to_string(), "2026-11-17T12:00:00Z");
    }

    #[test]
    fn what_goes_wrong_is_said_in_plain_words() {
        for (plugin, expected) in [
            (plugin("exit 3"), "it ended with exit status: 3"),
            (plugin(&answer("{}")), "its answer has neither a token nor a certificate"),
            (plugin(&answer("null")), "its answer has no status"),
            (
                plugin(&answer(r#"{"clientKeyData":"k"}"#)),
                "its answer has a certificate without a key, or a key without a certificate",
            ),
            (
                plugin(r#"echo '{"kind":"Secret","apiVersion":"v1"}'"#),
                "it answered with v1 Secret, not with client.authentication.k8s.io/v1 ExecCredential",
            ),
            (
                ExecPlugin {
                    command: "/nonexistent/login".into(),
                    install_hint: Some("get it from your administrator\n".into()),
                    ..plugin("")
                },
                "No such file or directory (os error 2): get it from your administrator",
            ),
        ] {
            assert_eq!(plugin.run().unwrap_err(), expected);
        }
        let garbage = plugin("echo hello").run().unwrap_err();
        assert!(garbage.starts_with("its answer is not an ExecCredential: "), "{garbage}");
        let old = ExecPlugin { api_version: "client.authentication.k8s.io/v1alpha1".into(), ..plugin("") };
        assert_eq!(
            old.check().unwrap_err(),
            "its user's exec speaks \"client.authentication.k8s.io/v1alpha1\", which is not supported: \
             client.authentication.k8s.io/v1 and client.authentication.k8s.io/v1beta1 are"
        );
    }
}
