package main

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// checks are in the order of the README's list. Each connects anew.
var checks = map[string]func(*C){
	"scram-sha-1":                 scramSHA1,
	"scram-sha-256":               scramSHA256,
	"scram-sha-256-saslprep":      scramSHA256SASLprep,
	"scram-default":               scramDefault,
	"plain":                       plain,
	"x509":                        x509,
	"encrypted-client-key":        encryptedClientKey,
	"wrong-password":              wrongPassword,
	"unknown-x509-user":           unknownX509User,
	"wrong-certificate":           wrongCertificate,
	"wrong-host-name":             wrongHostName,
	"compressor-snappy":           func(c *C) { compressor(c, "snappy") },
	"compressor-zlib":             func(c *C) { compressor(c, "zlib") },
	"compressor-zstd":             func(c *C) { compressor(c, "zstd") },
	"ping":                        pingOnce,
	"crud":                        crud,
	"create-user":                 createUser,
	"unknown-command":             unknownCommand,
	"unacknowledged-write":        unacknowledgedWrite,
	"large-document":              largeDocument,
	"too-large-document":          tooLargeDocument,
	"large-batch":                 largeBatch,
	"cursor-get-mores":            cursorGetMores,
	"kill-cursors":                killCursors,
	"fail-point-error-code":       failPointErrorCode,
	"fail-point-close-connection": failPointCloseConnection,
	"fail-point-block-connection": failPointBlockConnection,
	"fail-point-times":            failPointTimes,
	"fail-point-app-name":         failPointAppName,
	"error-labels":                errorLabels,
	"streaming-hello":             streamingHello,
	"replica-set":                 replicaSet,
	"load-balanced":               loadBalanced,
	"threads-32":                  threads32,
	"pool-events":                 poolEventsOfOneCommand,
	"set-secondary-reads":         setSecondaryReads,
	"set-step-down":               setStepDown,
	"set-kill":                    setKill,
	"set-change-stream":           setChangeStream,
	"set-srv":                     setSrv,
}

// fresh is an empty collection.
func (c *C) fresh(client *mongo.Client, name string, documents ...any) *mongo.Collection {
	collection := client.Database("test").Collection(name)
	c.must(collection.Drop(background))
	if len(documents) > 0 {
		_, err := collection.InsertMany(background, documents)
		c.must(err)
	}
	return collection
}

// numbered are documents that are numbered from 0 up.
func numbered(count int) (documents []any) {
	for n := range count {
		documents = append(documents, bson.D{{"_id", n}})
	}
	return documents
}
