//! The `pki` folder: keys and certificates on disk, readable by their owner only; each file is written atomically.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use jiff::Timestamp;

use super::material::{
    ADMIN, CONTROLLER_MANAGER, CertificateState, Leaf, SCHEDULER, authority_state, issue, leaf_state, new_authority,
    new_key,
};
use super::{Error, Identity, Names, Pki};

/// Certificate and key share a file, as those of every identity do, so that no crash leaves one without the other.
const AUTHORITY_FILE: &str = "ca.pem";
/// The certificate of the authority alone, to be given to clients.
const AUTHORITY_CERTIFICATE_FILE: &str = "ca.crt";
const SERVICE_ACCOUNT_FILE: &str = "service-account.key";

impl Pki {
    /// Reads the folder, creates what is missing, and renews what expires soon.
    pub fn open(folder: &Path, names: &Names, now: Timestamp) -> Result<Self, Error> {
        create_folder(folder)?;
        let authority = open_authority(folder, now)?;
        let leaf = |file: &str, leaf: &Leaf| open_leaf(&folder.join(file), leaf, &authority, now);
        Ok(Pki {
            server: leaf("apiserver.pem", &Leaf::server(names))?,
            admin: leaf("admin.pem", &ADMIN)?,
            scheduler: leaf("scheduler.pem", &SCHEDULER)?,
            controller_manager: leaf("controller-manager.pem", &CONTROLLER_MANAGER)?,
            service_account_key: open_service_account_key(&folder.join(SERVICE_ACCOUNT_FILE))?,
            authority,
        })
    }
}

fn open_authority(folder: &Path, now: Timestamp) -> Result<Identity, Error> {
    let path = folder.join(AUTHORITY_FILE);
    let stored = match read_identity(&path)? {
        Some(authority) => match authority_state(&authority, now).map_err(|why| broken(&path, why))? {
            CertificateState::Valid => Some(authority),
            CertificateState::Renew => None,
        },
        None => None,
    };
    let authority = match stored {
        Some(authority) => authority,
        None => {
            let authority = new_authority(now)?;
            write_private(&path, &join(&authority))?;
            authority
        }
    };
    let copy = folder.join(AUTHORITY_CERTIFICATE_FILE);
    if read(&copy)?.as_deref() != Some(authority.certificate.as_str()) {
        write_private(&copy, &authority.certificate)?;
    }
    Ok(authority)
}

fn open_leaf(path: &Path, leaf: &Leaf, authority: &Identity, now: Timestamp) -> Result<Identity, Error> {
    if let Some(identity) = read_identity(path)?
        && leaf_state(&identity, leaf, authority, now).map_err(|why| broken(path, why))? == CertificateState::Valid
    {
        return Ok(identity);
    }
    let identity = issue(authority, leaf, now)?;
    write_private(path, &join(&identity))?;
    Ok(identity)
}

fn open_service_account_key(path: &Path) -> Result<String, Error> {
    if let Some(pem) = read(path)? {
        rcgen::KeyPair::from_pem(&pem).map_err(|error| broken(path, format!("its key cannot be read ({error})")))?;
        return Ok(pem);
    }
    let pem = new_key("service account key")?.serialize_pem();
    write_private(path, &pem)?;
    Ok(pem)
}

fn join(identity: &Identity) -> String {
    format!("{}{}", identity.certificate, identity.key)
}

fn read_identity(path: &Path) -> Result<Option<Identity>, Error> {
    const KEY_START: &str = "-----BEGIN PRIVATE KEY-----";
    let Some(text) = read(path)? else { return Ok(None) };
    let Some(at) = text.find(KEY_START) else { return Err(broken(path, "it holds no private key".into())) };
    let (certificate, key) = text.split_at(at);
    Ok(Some(Identity { certificate: certificate.to_owned(), key: key.to_owned() }))
}

fn broken(path: &Path, why: String) -> Error {
    Error::Broken { what: path.display().to_string(), why }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { action: "read", path: path.to_owned(), source }),
    }
}

fn create_folder(folder: &Path) -> Result<(), Error> {
    let io = |source| Error::Io { action: "create", path: folder.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    // A folder that was there may be readable by others, but private keys are in it.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(io)
}

/// Writes a file that only its owner may read, atomically even if the machine stops.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let io = |source| Error::Io { action: "write", path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let result = (|| {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        fs::File::open(folder)?.sync_all()
    })();
    if result.is_err() {
        // The write has failed already; a failed cleanup adds nothing.
        let _ = fs::remove_file(&temporary);
    }
    result.map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::standard(Some("box"), [10, 96, 0, 1].into())
    }

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + days * 86_400).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_folder_and_its_files_are_the_owners_only() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data/pki");
        Pki::open(&folder, &names(), at(0)).unwrap();
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 7, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }

    #[test]
    fn a_second_start_finds_the_same_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &names(), at(0)).unwrap();
        let second = Pki::open(dir.path(), &names(), at(1)).unwrap();
        assert_eq!(first.authority, second.authority);
        assert_eq!(first.server, second.server);
        assert_eq!(first.admin, second.admin);
        assert_eq!(first.service_account_key, second.service_account_key);
    }

    #[test]
    fn certificates_that_expire_soon_are_renewed_and_the_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &names(), at(0)).unwrap();
        let later = Pki::open(dir.path(), &names(), at(340)).unwrap();
        assert_eq!(first.authority, later.authority);
        assert_ne!(first.admin, later.admin);
        let much_later = Pki::open(dir.path(), &names(), at(3400)).unwrap();
        assert_ne!(first.authority, much_later.authority);
        assert_eq!(first.service_account_key, much_later.service_account_key);
    }

    #[test]
    fn a_new_name_renews_the_server_certificate_only() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &names(), at(0)).unwrap();
        let mut more = names();
        more.addresses.push([192, 0, 2, 7].into());
        let second = Pki::open(dir.path(), &more, at(0)).unwrap();
        assert_ne!(first.server, second.server);
        assert_eq!(first.admin, second.admin);
    }

    #[test]
    fn a_replaced_authority_renews_its_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &names(), at(0)).unwrap();
        fs::remove_file(dir.path().join(AUTHORITY_FILE)).unwrap();
        let second = Pki::open(dir.path(), &names(), at(0)).unwrap();
        assert_ne!(first.authority, second.authority);
        assert_ne!(first.server, second.server);
        assert_eq!(fs::read_to_string(dir.path().join("ca.crt")).unwrap(), second.authority.certificate);
    }

    #[test]
    fn a_broken_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &names(), at(0)).unwrap();
        for file in [AUTHORITY_FILE, "admin.pem", SERVICE_ACCOUNT_FILE] {
            let path = dir.path().join(file);
            let good = fs::read_to_string(&path).unwrap();
            fs::write(&path, "garbage").unwrap();
            let error = Pki::open(dir.path(), &names(), at(0)).unwrap_err().to_string();
            assert!(error.contains(&*path.to_string_lossy()) && error.lines().count() == 1, "{error}");
            fs::write(&path, good).unwrap();
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), &names(), at(0)).unwrap();
        let path = dir.path().join("admin.pem");
        fs::write(&path, format!("{}{}", pki.admin.certificate, pki.scheduler.key)).unwrap();
        let error = Pki::open(dir.path(), &names(), at(0)).unwrap_err().to_string();
        assert!(error.contains("does not belong"), "{error}");
    }
}
