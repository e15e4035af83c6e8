//! What a cluster of relays keeps at the NATS server: a lease, the stream of commits, and a snapshot of the journal.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind};
use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::nats::{Bus, NatsError, server};

/// Timeout of a request that is repeated.
const ANSWER: Duration = Duration::from_secs(1);
/// Timeout of a request of the stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of a snapshot.
const SNAPSHOT: Duration = Duration::from_secs(600);
/// Reads on their way at once.
const READ_AHEAD: usize = 32;
/// How long an id is recognised: longer than anybody repeats one.
const RECOGNISED: Duration = Duration::from_secs(120);
/// Bytes of a message beside its payload.
const OVERHEAD: usize = 1024;
/// Largest record if the server does not say what it takes.
const RECORD_BYTES: usize = 512 << 10;
/// Bytes of a piece of the snapshot.
const CHUNK_BYTES: usize = 128 << 10;
/// The name of the snapshot.
const OBJECT: &str = "journal";

/// What a request for the lease came to.
#[derive(Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// It is the asking member's, under this revision.
    Granted(u64),
    /// It is not.
    Taken,
    /// Nobody knows.
    Unknown,
}

/// What an attempt to append a record came to.
#[derive(Debug, PartialEq, Eq)]
pub enum AppendReply {
    /// The stream has it, under this number.
    Stored(u64),
    /// The stream has another record there.
    Fenced,
    /// Nobody knows.
    Unknown(String),
}

/// What the stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBounds {
    /// The first record that is still there; one more than the last if there is none.
    pub first: u64,
    /// The last record that ever was.
    pub last: u64,
    /// Records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The lease, the stream and the snapshot of one cluster. Clones share them.
#[derive(Clone)]
pub struct ClusterStore {
    bus: Bus,
    jetstream: jetstream::Context,
    log: stream::Stream,
    subject: String,
    leases: stream::Stream,
    lease: String,
    objects: ObjectStore,
}

impl std::fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterStore")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

impl ClusterStore {
    /// Opens what the cluster of that name has; makes what is not there.
    pub async fn open(
        bus: &Bus,
        (prefix, name): (&str, &str),
        ttl: Duration,
        replicas: usize,
    ) -> Result<Self, NatsError> {
        let jetstream = bus.jetstream();
        let bucket = format!("{prefix}_{name}");
        let subject = format!("{prefix}.cluster.{name}.log");
        let log = stream::Config {
            name: bucket.clone(),
            subjects: vec![subject.clone()],
            discard: stream::DiscardPolicy::New,
            duplicate_window: RECOGNISED,
            num_replicas: replicas,
            ..stream::Config::default()
        };
        // A key-value bucket, made by hand: making one with the crate needs a server of version 2.10.
        let leases = stream::Config {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            discard: stream::DiscardPolicy::New,
            max_messages_per_subject: 1,
            max_age: ttl,
            duplicate_window: ttl,
            allow_rollup: true,
            num_replicas: replicas,
            ..stream::Config::default()
        };
        let log = jetstream.get_or_create_stream(log).await.map_err(server)?;
        let leases = jetstream.get_or_create_stream(leases).await.map_err(server)?;
        let objects = match jetstream.get_object_store(&bucket).await {
            Ok(objects) => objects,
            Err(_) => jetstream
                .create_object_store(object_store::Config {
                    bucket: bucket.clone(),
                    num_replicas: replicas,
                    max_bytes: -1,
                    ..object_store::Config::default()
                })
                .await
                .map_err(server)?,
        };
        Ok(Self {
            bus: bus.clone(),
            jetstream,
            log,
            subject,
            leases,
            lease: format!("$KV.{bucket}.lease"),
            objects,
        })
    }

    /// Bytes that one record may have.
    pub fn record_bytes(&self) -> usize {
        let most = self.bus.server().map(|(_, most)| most);
        most.map_or(RECORD_BYTES, |most| {
            most.saturating_sub(OVERHEAD).clamp(4096, RECORD_BYTES)
        })
    }

    /// Asks for the lease, with this text in it; renews the one of this revision, if there is one.
    pub async fn ask_lease(&self, revision: Option<u64>, text: Vec<u8>) -> LeaseReply {
        let message = PublishMessage::build()
            .payload(text.into())
            .expected_last_subject_sequence(revision.unwrap_or(0));
        match self.publish(self.lease.clone(), message).await {
            Ok(revision) => LeaseReply::Granted(revision),
            Err(PublishRefusal::WrongSequence) => LeaseReply::Taken,
            Err(PublishRefusal::Unknown(_)) => LeaseReply::Unknown,
        }
    }

    /// The lease that is there: its revision and its text.
    pub async fn lease(&self) -> Result<Option<(u64, Vec<u8>)>, NatsError> {
        let read = timeout(ANSWER, self.leases.get_last_raw_message_by_subject(&self.lease));
        match read.await.map_err(|_| NatsError::Timeout)? {
            Ok(message) => Ok(Some((message.sequence, message.payload.into()))),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(server(error)),
        }
    }

    /// Gives the lease of this revision back; any other stays.
    pub async fn release_lease(&self, revision: u64) -> bool {
        let released = timeout(ANSWER, self.leases.delete_message(revision)).await;
        matches!(released, Ok(Ok(_)))
    }

    /// Appends a record after this one, once, however often it is tried.
    pub async fn append(&self, id: &str, expected: u64, record: Vec<u8>) -> AppendReply {
        let message = PublishMessage::build()
            .payload(record.into())
            .message_id(id)
            .expected_last_sequence(expected);
        match self.publish(self.subject.clone(), message).await {
            Ok(seq) => AppendReply::Stored(seq),
            Err(PublishRefusal::WrongSequence) => AppendReply::Fenced,
            Err(PublishRefusal::Unknown(why)) => AppendReply::Unknown(why),
        }
    }

    async fn publish(&self, subject: String, message: PublishMessage) -> Result<u64, PublishRefusal> {
        let published = async {
            let ack = self.jetstream.send_publish(subject, message).await?;
            ack.await
        };
        match timeout(ANSWER, published).await {
            Ok(Ok(ack)) => Ok(ack.sequence),
            Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Err(PublishRefusal::WrongSequence)
            }
            Ok(Err(error)) => Err(PublishRefusal::Unknown(error.to_string())),
            Err(_) => Err(PublishRefusal::Unknown(
                "the NATS server did not answer in time".to_owned(),
            )),
        }
    }

    /// What the stream has.
    pub async fn bounds(&self) -> Result<StreamBounds, NatsError> {
        let info = timeout(ANSWER, self.log.get_info()).await;
        let state = info.map_err(|_| NatsError::Timeout)?.map_err(server)?.state;
        Ok(StreamBounds {
            first: state.first_sequence,
            last: state.last_sequence,
            records: state.messages,
            bytes: state.bytes,
        })
    }

    /// The records of this range, in order; fewer if they are many bytes.
    pub async fn read(
        &self,
        range: std::ops::RangeInclusive<u64>,
        most_bytes: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, NatsError> {
        let reads = range.map(|seq| async move {
            let read = timeout(PATIENCE, self.log.get_raw_message(seq)).await;
            let message = read.map_err(|_| NatsError::Timeout)?.map_err(server)?;
            Ok::<_, NatsError>((message.sequence, Vec::from(message.payload)))
        });
        let mut reads = futures_util::stream::iter(reads).buffered(READ_AHEAD);
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(record) = reads.next().await {
            let record = record?;
            bytes += record.1.len();
            records.push(record);
            if bytes >= most_bytes {
                break;
            }
        }
        Ok(records)
    }

    /// Deletes the records before this one.
    pub async fn truncate(&self, before: u64) -> Result<(), NatsError> {
        let purged = timeout(PATIENCE, async { self.log.purge().sequence(before).await }).await;
        purged.map_err(|_| NatsError::Timeout)?.map_err(server)?;
        Ok(())
    }

    /// Stores a file as the snapshot, or under another name, in place of the one before.
    pub async fn put_snapshot(&self, name: Option<&str>, file: &Path) -> Result<(), NatsError> {
        let mut file = tokio::fs::File::open(file).await.map_err(server)?;
        let object = object_store::ObjectMetadata {
            name: name.unwrap_or(OBJECT).to_owned(),
            chunk_size: Some(self.record_bytes().min(CHUNK_BYTES)),
            ..object_store::ObjectMetadata::default()
        };
        let put = timeout(SNAPSHOT, self.objects.put(object, &mut file)).await;
        put.map_err(|_| NatsError::Timeout)?.map_err(server)?;
        Ok(())
    }

    /// Deletes a copy of a journal.
    pub async fn delete_copy(&self, name: &str) {
        let _ = timeout(PATIENCE, self.objects.delete(name)).await;
    }

    /// Deletes all copies whose names begin like this, except one.
    pub async fn delete_copies(&self, prefix: &str, except: &str) {
        let Ok(Ok(mut list)) = timeout(PATIENCE, self.objects.list()).await else {
            return;
        };
        let mut names = Vec::new();
        while let Ok(Some(object)) = timeout(PATIENCE, list.next()).await {
            names.extend(object.map(|object| object.name));
        }
        for name in names {
            if name.starts_with(prefix) && name != except {
                self.delete_copy(&name).await;
            }
        }
    }

    /// Copies the snapshot, or what has another name, to a file; `false` if there is none.
    pub async fn get_snapshot(&self, name: Option<&str>, into: &Path) -> Result<bool, NatsError> {
        let mut object = match timeout(PATIENCE, self.objects.get(name.unwrap_or(OBJECT))).await {
            Err(_) => return Err(NatsError::Timeout),
            Ok(Err(error)) if error.kind() == object_store::GetErrorKind::NotFound => return Ok(false),
            Ok(Err(error)) => return Err(server(error)),
            Ok(Ok(object)) => object,
        };
        let mut file = tokio::fs::File::create(into).await.map_err(server)?;
        let copied = timeout(SNAPSHOT, tokio::io::copy(&mut object, &mut file)).await;
        copied.map_err(|_| NatsError::Timeout)?.map_err(server)?;
        file.sync_all().await.map_err(server)?;
        Ok(true)
    }
}

/// Why a message was not stored.
enum PublishRefusal {
    WrongSequence,
    Unknown(String),
}
