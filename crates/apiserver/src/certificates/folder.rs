//! The `pki` folder: keys and certificates on disk, readable by their owner only; each file is written atomically.
//!
//! A file that somebody else put there is not used: its author would know the keys of the cluster.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
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
        let folder = Folder { path: folder, owner: own_user(folder)? };
        folder.open(names, now)
    }
}

/// The folder, and the user whose files in it are trusted.
struct Folder<'a> {
    path: &'a Path,
    owner: u32,
}

impl Folder<'_> {
    fn open(&self, names: &Names, now: Timestamp) -> Result<Pki, Error> {
        // Neither the folder nor a link that leads to it may be somebody else's.
        for metadata in [fs::symlink_metadata(self.path), fs::metadata(self.path)] {
            self.check_owner(self.path, &metadata.map_err(io("read", self.path))?)?;
        }
        // The files of a folder that was there may be readable by others, but private keys are in it.
        fs::set_permissions(self.path, fs::Permissions::from_mode(0o700)).map_err(io("create", self.path))?;
        let authority = self.open_authority(now)?;
        let leaf = |file: &str, leaf: &Leaf| self.open_leaf(file, leaf, &authority, now);
        Ok(Pki {
            server: leaf("apiserver.pem", &Leaf::server(names))?,
            admin: leaf("admin.pem", &ADMIN)?,
            scheduler: leaf("scheduler.pem", &SCHEDULER)?,
            controller_manager: leaf("controller-manager.pem", &CONTROLLER_MANAGER)?,
            service_account_key: self.open_service_account_key()?,
            authority,
        })
    }

    fn open_authority(&self, now: Timestamp) -> Result<Identity, Error> {
        let path = self.path.join(AUTHORITY_FILE);
        let stored = match self.read_identity(&path)? {
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
        let copy = self.path.join(AUTHORITY_CERTIFICATE_FILE);
        if self.read(&copy)?.as_deref() != Some(authority.certificate.as_str()) {
            write_private(&copy, &authority.certificate)?;
        }
        Ok(authority)
    }

    fn open_leaf(&self, file: &str, leaf: &Leaf, authority: &Identity, now: Timestamp) -> Result<Identity, Error> {
        let path = self.path.join(file);
        if let Some(identity) = self.read_identity(&path)?
            && leaf_state(&identity, leaf, authority, now).map_err(|why| broken(&path, why))? == CertificateState::Valid
        {
            return Ok(identity);
        }
        let identity = issue(authority, leaf, now)?;
        write_private(&path, &join(&identity))?;
        Ok(identity)
    }

    fn open_service_account_key(&self) -> Result<String, Error> {
        let path = self.path.join(SERVICE_ACCOUNT_FILE);
        if let Some(pem) = self.read(&path)? {
            rcgen::KeyPair::from_pem(&pem)
                .map_err(|error| broken(&path, format!("its key cannot be read ({error})")))?;
            return Ok(pem);
        }
        let pem = new_key("service account key")?.serialize_pem();
        write_private(&path, &pem)?;
        Ok(pem)
    }

    fn read_identity(&self, path: &Path) -> Result<Option<Identity>, Error> {
        const KEY_START: &str = "-----BEGIN PRIVATE KEY-----";
        let Some(text) = self.read(path)? else { return Ok(None) };
        let Some(at) = text.find(KEY_START) else { return Err(broken(path, "it holds no private key".into())) };
        let (certificate, key) = text.split_at(at);
        Ok(Some(Identity { certificate: certificate.to_owned(), key: key.to_owned() }))
    }

    fn read(&self, path: &Path) -> Result<Option<String>, Error> {
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("read", path)(error)),
        };
        self.check_owner(path, &file.metadata().map_err(io("read", path))?)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io("read", path))?;
        Ok(Some(text))
    }

    fn check_owner(&self, path: &Path, metadata: &fs::Metadata) -> Result<(), Error> {
        match metadata.uid() {
            uid if uid == self.owner => Ok(()),
            uid => Err(broken(path, format!("it belongs to another user (uid {uid})"))),
        }
    }
}

/// The user that files which this process makes in the folder belong to.
fn own_user(folder: &Path) -> Result<u32, Error> {
    let file = tempfile::tempfile_in(folder).map_err(io("write", folder))?;
    Ok(file.metadata().map_err(io("read", folder))?.uid())
}

fn join(identity: &Identity) -> String {
    format!("{}{}", identity.certificate, identity.key)
}

fn broken(path: &Path, why: String) -> Error {
    Error::Broken { what: path.display().to_string(), why }
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}

fn create_folder(folder: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io("create", folder))
}

/// Writes a file that only its owner may read, atomically even if the machine stops.
///
/// Others may be able to write to the folder. So the text goes into a new file, whose name nobody could guess and make
/// first, and which takes the place of whatever is at `path`: a link there is replaced, never followed.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let result = (|| {
        let owner_only = fs::Permissions::from_mode(0o600);
        let mut file =
            tempfile::Builder::new().prefix(&prefix).suffix(".tmp").permissions(owner_only).tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        fs::File::open(folder)?.sync_all()
    })();
    result.map_err(io("write", path))
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

    #[test]
    fn what_somebody_else_put_into_the_folder_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &names(), at(0)).unwrap();
        let own = own_user(dir.path()).unwrap();
        let error = Folder { path: dir.path(), owner: own + 1 }.open(&names(), at(0)).unwrap_err().to_string();
        assert!(error.contains(&format!("it belongs to another user (uid {own})")), "{error}");
        let (mine, theirs) = (Folder { path: dir.path(), owner: own }, Folder { path: dir.path(), owner: own + 1 });
        assert!(mine.read(&dir.path().join("admin.pem")).is_ok_and(|text| text.is_some()));
        assert!(theirs.read(&dir.path().join("admin.pem")).is_err());
        assert!(theirs.read(&dir.path().join("missing.pem")).is_ok_and(|text| text.is_none()));
    }

    #[test]
    fn a_private_file_goes_neither_through_a_link_nor_into_a_file_that_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("config"), dir.path().join("victim"));
        fs::write(&victim, "untouched").unwrap();
        // The names that this process could be expected to use.
        let guess = dir.path().join(format!(".config.{}.tmp", std::process::id()));
        for link in [&guess, &path] {
            std::os::unix::fs::symlink(&victim, link).unwrap();
        }
        write_private(&path, "secret").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("secret", 0o600));

        // Whoever made the file first, and has it open, does not see the secret.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let mut held = fs::File::open(&path).unwrap();
        write_private(&path, "secret").unwrap();
        let mut seen = String::new();
        held.read_to_string(&mut seen).unwrap();
        assert_eq!((seen.as_str(), mode(&path)), ("", 0o600));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
}
