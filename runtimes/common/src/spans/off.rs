//! Without the feature `tracing` there are no spans.

use std::future::Future;

use bson::RawDocument;
use cmap_core::address::ServerAddress;
use cmap_core::connection::Command;
use cmap_core::server::SentCommand;

use crate::error::{CommandErrorKind, OperationError};

pub(crate) enum Spans {}

pub(crate) enum OperationSpan {}

pub(crate) enum TransactionSpan {}

pub(crate) enum CommandSpan {}

impl Spans {
    pub(crate) fn operation(&self, _: &RawDocument, _: &str, _: Option<&TransactionSpan>) -> OperationSpan {
        match *self {}
    }

    pub(crate) fn transaction(&self) -> TransactionSpan {
        match *self {}
    }

    pub(crate) fn command(
        &self,
        _: &ServerAddress,
        _: &SentCommand,
        _: &Command<'_>,
        _: Option<&RawDocument>,
    ) -> Option<CommandSpan> {
        match *self {}
    }
}

impl OperationSpan {
    pub(crate) async fn around<T>(
        self,
        _: impl Future<Output = T>,
        _: impl FnOnce(&T) -> Option<&OperationError>,
    ) -> T {
        match self {}
    }
}

impl CommandSpan {
    pub(crate) fn record_reply(&self, _: &RawDocument) {
        match *self {}
    }

    pub(crate) fn record_failure(&self, _: &CommandErrorKind) {
        match *self {}
    }

    pub(crate) fn record_given_up(&self) {
        match *self {}
    }
}
