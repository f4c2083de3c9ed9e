//! rskafka over TLS and SASL: the program of `../../access.py`. It has no groups, so it reads the partition.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use chrono::DateTime;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, OauthBearerCredentials, SaslConfig};
use rskafka::record::Record;
use rskafka::BackoffConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{json, Value};

const LONGEST: Duration = Duration::from_secs(60);
const REFUSED: Duration = Duration::from_secs(5);
const BATCH: usize = 1000;

type Failed = Box<dyn Error + Send + Sync>;
type Token = Pin<Box<dyn Future<Output = Result<String, Failed>> + Send>>;

fn text<'a>(access: &'a Value, name: &str) -> &'a str {
    access[name].as_str().unwrap()
}

fn encryption(access: &Value) -> Result<ClientConfig, Failed> {
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(text(access, "authority"))? {
        trusted.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(trusted);
    if text(access, "certificate").is_empty() {
        return Ok(config.with_no_client_auth());
    }
    let chain = CertificateDer::pem_file_iter(text(access, "certificate"))?.collect::<Result<Vec<_>, _>>()?;
    Ok(config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(text(access, "key"))?)?)
}

fn login(access: &Value) -> Option<SaslConfig> {
    let user = || Credentials::new(text(access, "username").into(), text(access, "password").into());
    match text(access, "mechanism") {
        "PLAIN" => Some(SaslConfig::Plain(user())),
        "SCRAM-SHA-256" => Some(SaslConfig::ScramSha256(user())),
        "SCRAM-SHA-512" => Some(SaslConfig::ScramSha512(user())),
        "OAUTHBEARER" => {
            let token = text(access, "token").to_string();
            Some(SaslConfig::Oauthbearer(OauthBearerCredentials {
                callback: Arc::new(move || {
                    let token = token.clone();
                    Box::pin(async move { Ok(token) }) as Token
                }),
                authz_id: None,
                bearer_kvs: vec![],
            }))
        }
        _ => None,
    }
}

async fn connect(access: &Value, longest: Duration) -> Result<Client, Failed> {
    let mut builder = ClientBuilder::new(text(access, "bootstrap").split(',').map(Into::into).collect());
    builder = builder.backoff_config(BackoffConfig {
        deadline: Some(longest),
        ..BackoffConfig::default()
    });
    if text(access, "protocol").ends_with("SSL") {
        builder = builder.tls_config(Arc::new(encryption(access)?));
    }
    if let Some(login) = login(access) {
        builder = builder.sasl_config(login);
    }
    Ok(builder.build().await?)
}

fn record(number: usize) -> Record {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Record {
        key: None,
        value: Some(number.to_string().into_bytes()),
        headers: BTreeMap::new(),
        timestamp: DateTime::from_timestamp_millis(now.as_millis() as i64).unwrap(),
    }
}

async fn once(access: &Value) -> Result<Value, Failed> {
    let records = access["records"].as_u64().unwrap() as usize;
    let client = connect(access, LONGEST).await?;
    let topic = text(access, "topic");
    // Of the faults (../faults/) the topic exists, and the request below says so if it does not.
    let _ = client.controller_client()?.create_topic(topic, 1, 1, 5000).await;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    for first in (0..records).step_by(BATCH) {
        let batch = (first..records.min(first + BATCH)).map(record).collect();
        partition.produce(batch, Compression::NoCompression).await?;
    }
    let (mut read, mut offset, began) = (HashSet::new(), 0, Instant::now());
    while read.len() < records && began.elapsed() < LONGEST {
        let (found, _) = partition.fetch_records(offset, 1..1_000_000, 1000).await?;
        for each in found {
            offset = each.offset + 1;
            read.insert(each.record.value);
        }
    }
    Ok(json!({"read": read.len()}))
}

async fn refused(access: &Value) -> Result<Value, Failed> {
    match connect(access, REFUSED).await {
        Ok(_) => Err("connected".into()),
        Err(error) => Ok(json!({"refused": format!("{error:?}")})),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let file = std::env::args().nth(1).ok_or("which settings?")?;
    let access: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let done = match text(&access, "mode") {
        "once" => once(&access).await?,
        "refused" => refused(&access).await?,
        mode => return Err(format!("no mode {mode}").into()),
    };
    println!("{done}");
    Ok(())
}
