//! A client whose calls are spans by OpenTelemetry's names (feature `tracing`), in a file that an OpenTelemetry Collector reads.
//!
//! ```sh
//! cargo run -p cmap-tokio --example spans -- spans.jsonl mongodb://localhost/
//! ```
//!
//! A line is a batch of spans in OTLP's JSON, as the Collector's receiver `otlpjsonfile` takes it. A service that sends spans to a
//! Collector over the network has an exporter of `opentelemetry-otlp` instead of this file.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use cmap_tokio::bson::doc;
use cmap_tokio::{Client, ClientOptions, SpanOptions};
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider;
use opentelemetry_proto::tonic::trace::v1::TracesData;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::{Instrument, Subscriber, info_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap_or_else(|| "spans.jsonl".into());
    let uri = arguments.next().unwrap_or_else(|| "mongodb://localhost/".into());
    let provider = exporting_to(Path::new(&file))?;
    tracing::subscriber::set_global_default(subscriber(&provider))?;
    place_order(&uri).await?;
    provider.shutdown()?;
    Ok(())
}

/// What makes spans of the crate `tracing` those of OpenTelemetry.
pub(crate) fn subscriber(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let scope = InstrumentationScope::builder("cmap").with_version(env!("CARGO_PKG_VERSION")).build();
    let tracer = provider.tracer_with_scope(scope);
    Registry::default().with(tracing_opentelemetry::layer().with_tracer(tracer))
}

/// A request of a service: its span has those of the client in it.
pub(crate) async fn place_order(uri: &str) -> Result<(), Box<dyn Error>> {
    let (options, warnings) = ClientOptions::parse(uri)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    // Or without a change to the program: OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED=true.
    let client: Client = Client::builder(options).spans(SpanOptions::on()).build().await?;
    let request = async {
        let insert = doc! { "insert": "orders", "documents": [{ "item": "apple", "amount": 3 }] };
        client.run(("shop", insert)).await?;
        client.run(("shop", doc! { "count": "orders" })).await
    };
    request.instrument(info_span!("POST /orders", otel.kind = "server")).await?;
    client.close(Duration::from_secs(5)).await?;
    Ok(())
}

/// What writes spans to `file`.
pub(crate) fn exporting_to(file: &Path) -> Result<SdkTracerProvider, Box<dyn Error>> {
    let exporter = FileExporter { file: Mutex::new(File::create(file)?), resource: Resource::builder_empty().build() };
    let resource = Resource::builder().with_service_name("shop").build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

/// Writes each batch as a line of OTLP's JSON.
#[derive(Debug)]
struct FileExporter {
    file: Mutex<File>,
    /// The service whose spans they are.
    resource: Resource,
}

impl SpanExporter for FileExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource = ResourceAttributesWithSchema::from(&self.resource);
        let batch = TracesData { resource_spans: group_spans_by_resource_and_scope(batch, &resource) };
        let failed = |error: &dyn Error| OTelSdkError::InternalFailure(error.to_string());
        let mut line = serde_json::to_vec(&batch).map_err(|error| failed(&error))?;
        line.push(b'\n');
        let mut file = self.file.lock().map_err(|error| failed(&error))?;
        file.write_all(&line).map_err(|error| failed(&error))
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.clone();
    }
}
