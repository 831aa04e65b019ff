package main

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
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
}

const (
	subject = "CN=client,OU=cmap,O=cmap"
	// The longest document that a server takes.
	largest = 16 * 1024 * 1024
)

var (
	user = opts{"user": "user", "password": "secret"}
	// A client that is expected not to connect does not try for long.
	soon = opts{"serverSelectionTimeoutMS": "2000"}
)

// expectLogin: the server knows who it is, and lets in whom it knows.
func (c *C) expectLogin(client *mongo.Client, user, database string) {
	var status struct {
		AuthInfo struct {
			Users []bson.M `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	c.must(client.Database("admin").RunCommand(background, bson.D{{"connectionStatus", 1}}).Decode(&status))
	c.expect(status.AuthInfo.Users, []bson.M{{"user": user, "db": database}}, "authenticated users")
	if database != "users" {
		_, err := client.Database("test").Collection("logins").InsertOne(background, bson.D{{"user", user}})
		c.must(err)
	}
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

// Authentication.

func scramSHA1(c *C) {
	c.expectLogin(c.client("auth", user.with(opts{"authMechanism": "SCRAM-SHA-1"})), "user", "admin")
}

func scramSHA256(c *C) {
	c.expectLogin(c.client("auth", user.with(opts{"authMechanism": "SCRAM-SHA-256"})), "user", "admin")
}

func scramSHA256SASLprep(c *C) {
	// The server was told I, soft hyphen, X; SASLprep makes IX of it, and of the Roman numeral nine.
	for _, password := range []string{"IX", "\u2168"} {
		o := opts{"user": "sasl", "password": password, "authMechanism": "SCRAM-SHA-256"}
		c.expectLogin(c.client("auth", o), "sasl", "admin")
	}
}

func scramDefault(c *C) {
	c.expectLogin(c.client("auth", user), "user", "admin")
}

func plain(c *C) {
	o := c.tls("tls", "ca.pem", "").with(user).with(opts{"authMechanism": "PLAIN", "authSource": "$external"})
	c.expectLogin(c.client("tls", o), "user", "$external")
}

func x509(c *C) {
	o := c.tls("tls", "ca.pem", "client.pem").with(opts{"authMechanism": "MONGODB-X509"})
	c.expectLogin(c.client("tls", o), subject, "$external")
}

func encryptedClientKey(c *C) {
	o := c.tls("tls", "ca.pem", "client-encrypted.pem").with(opts{"authMechanism": "MONGODB-X509"})
	right := c.client("tls", o.with(opts{"tlsCertificateKeyFilePassword": "secret"}))
	c.expectLogin(right, subject, "$external")
	_, err := c.tryClient("tls", o.with(opts{"tlsCertificateKeyFilePassword": "wrong"}))
	c.expectError(err, "incorrect password")
}

func wrongPassword(c *C) {
	for _, mechanism := range []string{"SCRAM-SHA-1", "SCRAM-SHA-256"} {
		o := opts{"user": "user", "password": "wrong", "authMechanism": mechanism}
		c.expectError(ping(c.client("auth", o)), "authenticationfailed")
	}
	c.expectError(ping(c.client("auth", opts{"user": "nobody", "password": "secret"})), "authenticationfailed")
	nobody := c.client("auth", nil)
	_, err := nobody.Database("test").Collection("logins").InsertOne(background, bson.D{})
	c.expectCode(err, 13)
}

func unknownX509User(c *C) {
	o := c.tls("tls", "ca.pem", "stranger.pem").with(opts{"authMechanism": "MONGODB-X509"})
	c.expectError(ping(c.client("tls", o)), "auth error")
}

// TLS.

func wrongCertificate(c *C) {
	c.must(ping(c.client("tls", c.tls("tls", "ca.pem", "client.pem"))))
	distrustful := c.client("tls", c.tls("tls", "other-ca.pem", "").with(soon))
	c.expectError(ping(distrustful), "certificate signed by unknown authority")
	// This driver does not even show a certificate of an authority that the server did not name.
	o := c.tls("tls", "ca.pem", "other-client.pem").with(opts{"authMechanism": "MONGODB-X509"})
	c.expectError(ping(c.client("tls", o.with(soon))), "auth error")
}

func wrongHostName(c *C) {
	o := c.tls("wrong-host", "ca.pem", "").with(soon)
	c.expectError(ping(c.client("wrong-host", o)), "127.0.0.1")
	// This driver has no tlsAllowInvalidHostnames.
	c.must(ping(c.client("wrong-host", o.with(opts{"tlsInsecure": "true"}))))
}

// Compression.

func compressor(c *C, name string) {
	observer := c.client("open", nil)
	// For each compressor, how many bytes came and left compressed.
	type counts struct {
		Compressor struct {
			BytesOut int64 `bson:"bytesOut"`
		}
		Decompressor struct {
			BytesIn int64 `bson:"bytesIn"`
		}
	}
	count := func() map[string]counts {
		var status struct {
			Network struct{ Compression map[string]counts }
		}
		reply := observer.Database("admin").RunCommand(background, bson.D{{"serverStatus", 1}})
		c.must(reply.Decode(&status))
		return status.Network.Compression
	}
	before := count()
	client := c.client("open", opts{"compressors": name})
	collection := c.fresh(client, "compressed-"+name)
	document := bson.D{{"_id", int32(1)}, {"text", string(bytes.Repeat([]byte("a"), 100_000))}}
	_, err := collection.InsertOne(background, document)
	c.must(err)
	var found bson.D
	c.must(collection.FindOne(background, bson.D{}).Decode(&found))
	c.expect(found, document, "document")
	after := count()
	_, counted := after[name]
	c.expect(counted, true, "the server counts for "+name)
	for other, now := range after {
		then := before[other]
		grew := now.Decompressor.BytesIn > then.Decompressor.BytesIn && now.Compressor.BytesOut > then.Compressor.BytesOut
		c.expect(grew, other == name, "use of "+other)
	}
}

// Commands.

func pingOnce(c *C) {
	c.expect(fmt.Sprint(c.run(c.client("open", nil), "admin", bson.D{{"ping", 1}})["ok"]), "1", "ok")
}

func crud(c *C) {
	client := c.client("open", nil)
	database := client.Database("crud")
	c.must(database.Drop(background))
	things := database.Collection("things")
	thing := func(id, n int32) bson.D { return bson.D{{"_id", id}, {"n", n}} }

	one, err := things.InsertOne(background, thing(1, 1))
	c.must(err)
	c.expect(one.InsertedID, int32(1), "inserted id")
	many, err := things.InsertMany(background, []any{thing(2, 2), thing(3, 2)})
	c.must(err)
	c.expect(many.InsertedIDs, []any{int32(2), int32(3)}, "inserted ids")
	_, err = things.InsertOne(background, thing(1, 1))
	c.expectCode(err, 11000)

	all := func(cursor *mongo.Cursor, err error) (documents []bson.D) {
		c.must(err)
		c.must(cursor.All(background, &documents))
		return documents
	}
	found := all(things.Find(background, bson.D{{"n", 2}}, options.Find().SetSort(bson.D{{"_id", -1}})))
	c.expect(found, []bson.D{thing(3, 2), thing(2, 2)}, "found")

	updated, err := things.UpdateMany(background, bson.D{{"n", 2}}, bson.D{{"$set", bson.D{{"n", 5}}}})
	c.must(err)
	c.expect([]int64{updated.MatchedCount, updated.ModifiedCount}, []int64{2, 2}, "matched and modified")
	set := bson.D{{"$set", bson.D{{"n", 9}}}}
	upserted, err := things.UpdateOne(background, bson.D{{"_id", 9}}, set, options.UpdateOne().SetUpsert(true))
	c.must(err)
	c.expect(upserted.UpsertedID, int32(9), "upserted id")

	var changed bson.D
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	increment := bson.D{{"$inc", bson.D{{"n", 10}}}}
	c.must(things.FindOneAndUpdate(background, bson.D{{"_id", 1}}, increment, after).Decode(&changed))
	c.expect(changed, thing(1, 11), "found and modified")

	pipeline := []bson.D{{{"$match", bson.D{{"n", 5}}}}, {{"$limit", 1}}}
	c.expect(all(things.Aggregate(background, pipeline)), []bson.D{thing(2, 5)}, "aggregated")
	var distinct []int
	c.must(things.Distinct(background, "n", bson.D{}).Decode(&distinct))
	slices.Sort(distinct)
	c.expect(distinct, []int{5, 9, 11}, "distinct")
	count, err := things.EstimatedDocumentCount(background)
	c.must(err)
	c.expect(count, int64(4), "count")

	deleted, err := things.DeleteOne(background, bson.D{{"n", 5}})
	c.must(err)
	c.expect(deleted.DeletedCount, int64(1), "deleted")
	collections, err := database.ListCollectionNames(background, bson.D{})
	c.must(err)
	c.expect(collections, []string{"things"}, "collections")
	databases, err := client.ListDatabaseNames(background, bson.D{})
	c.must(err)
	c.expect(slices.Contains(databases, "crud"), true, "database is listed")
	c.must(things.Drop(background))
	c.expect(things.FindOne(background, bson.D{}).Err(), mongo.ErrNoDocuments, "a dropped collection's document")
}

func createUser(c *C) {
	client := c.client("auth", user)
	c.run(client, "users", bson.D{{"dropAllUsersFromDatabase", 1}})
	roles := bson.A{bson.D{{"role", "readWrite"}, {"db", "users"}}}
	mechanisms := bson.A{"SCRAM-SHA-256"}
	c.run(client, "users", bson.D{{"createUser", "new"}, {"pwd", "p\u00e4ss"}, {"roles", roles}, {"mechanisms", mechanisms}})
	created := c.client("auth", opts{"user": "new", "password": "p\u00e4ss", "authSource": "users"})
	c.expectLogin(created, "new", "users")
}

func unknownCommand(c *C) {
	admin := c.client("open", nil).Database("admin")
	err := admin.RunCommand(background, bson.D{{"noSuchCommand", 1}}).Err()
	c.expectCode(err, 59)
	c.expectError(err, "no such command: 'nosuchcommand'")
}

func unacknowledgedWrite(c *C) {
	// On a single connection the read follows the write.
	collection := c.fresh(c.client("open", opts{"maxPoolSize": "1"}), "unacknowledged")
	unacknowledged := collection.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	result, err := unacknowledged.InsertOne(background, bson.D{{"_id", int32(1)}})
	c.must(err)
	c.expect(result.Acknowledged, false, "acknowledged")
	var found bson.D
	c.must(collection.FindOne(background, bson.D{}).Decode(&found))
	c.expect(found, bson.D{{"_id", int32(1)}}, "document")
}

// documentOf is a document of so many bytes.
func documentOf(c *C, length int) bson.Raw {
	document := func(data []byte) bson.Raw {
		raw, err := bson.Marshal(bson.D{{"_id", int32(1)}, {"data", bson.Binary{Data: data}}})
		c.must(err)
		return raw
	}
	data := make([]byte, length-len(document(nil)))
	for n := range data {
		data[n] = byte(n % 251)
	}
	return document(data)
}

func largeDocument(c *C) {
	document := documentOf(c, largest)
	c.expect(len(document), largest, "length")
	collection := c.fresh(c.client("open", nil), "large")
	_, err := collection.InsertOne(background, document)
	c.must(err)
	found, err := collection.FindOne(background, bson.D{}).Raw()
	c.must(err)
	c.expect(bytes.Equal(found, document), true, "the same bytes came back")
	c.must(collection.Drop(background))
}

func tooLargeDocument(c *C) {
	client := c.client("open", nil)
	_, err := client.Database("test").Collection("large").InsertOne(background, documentOf(c, largest+1))
	c.expectError(err, "too large")
	c.must(ping(client))
}

func largeBatch(c *C) {
	sent := &commands{}
	collection := c.fresh(c.client("open", nil, sent.set), "batch", numbered(100_000)...)
	c.expect(len(sent.of("insert")), 1, "insert commands")
	cursor, err := collection.Find(background, bson.D{})
	c.must(err)
	var found []struct {
		ID int `bson:"_id"`
	}
	c.must(cursor.All(background, &found))
	c.expect(len(found), 100_000, "documents")
	for n, document := range found {
		c.expect(document.ID, n, "id")
	}
	c.must(collection.Drop(background))
}

// Cursors.

func cursorGetMores(c *C) {
	// A batch filled exactly leaves the cursor open (SRV-5).
	for _, of := range []struct{ documents, batchSize, getMores int }{{3, 1, 3}, {5, 2, 2}, {4, 2, 2}, {3, 5, 0}} {
		sent := &commands{}
		collection := c.fresh(c.client("open", nil, sent.set), "cursors", numbered(of.documents)...)
		cursor, err := collection.Find(background, bson.D{}, options.Find().SetBatchSize(int32(of.batchSize)))
		c.must(err)
		var found []bson.M
		c.must(cursor.All(background, &found))
		c.expect(len(found), of.documents, "documents")
		c.expect(len(sent.of("getMore")), of.getMores, fmt.Sprintf("getMores for %d by %d", of.documents, of.batchSize))
	}
}

func killCursors(c *C) {
	sent := &commands{}
	client := c.client("open", nil, sent.set)
	collection := c.fresh(client, "killed", numbered(10)...)
	cursor, err := collection.Find(background, bson.D{}, options.Find().SetBatchSize(2))
	c.must(err)
	for n := range 3 {
		c.expect(cursor.Next(background), true, "there is another document")
		c.expect(cursor.Current.Lookup("_id").AsInt64(), int64(n), "id of the first documents, in two batches")
	}
	id := cursor.ID()
	c.must(cursor.Close(background))
	killed := sent.of("killCursors")
	c.expect(len(killed), 1, "killCursors commands")
	c.expect(killed[0].Lookup("cursors", "0").Int64(), id, "killed cursor")
	getMore := bson.D{{"getMore", id}, {"collection", "killed"}}
	c.expectCode(client.Database("test").RunCommand(background, getMore).Err(), 43)
}

// Fail points.

func failPointErrorCode(c *C) {
	client := c.client("open", nil)
	c.failPoint(client, bson.D{{"times", 1}}, bson.D{{"failCommands", bson.A{"ping"}}, {"errorCode", 2}}, func() {
		err := ping(client)
		c.expectCode(err, 2)
		c.expectError(err, "failpoint")
		c.must(ping(client))
	})
}

func failPointCloseConnection(c *C) {
	client := c.client("open", nil)
	data := bson.D{{"failCommands", bson.A{"ping"}}, {"closeConnection", true}}
	c.failPoint(client, bson.D{{"times", 1}}, data, func() {
		c.expect(mongo.IsNetworkError(ping(client)), true, "it is a network error")
		c.must(ping(client))
	})
}

func failPointBlockConnection(c *C) {
	client := c.client("open", nil)
	measure := func(command string, duration *time.Duration, done *sync.WaitGroup) {
		defer done.Done()
		start := time.Now()
		if client.Database("admin").RunCommand(background, bson.D{{command, 1}}).Err() == nil {
			*duration = time.Since(start)
		}
	}
	data := bson.D{{"failCommands", bson.A{"ping"}}, {"blockConnection", true}, {"blockTimeMS", 500}}
	c.failPoint(client, bson.D{{"times", 1}}, data, func() {
		var blocked, other time.Duration
		var done sync.WaitGroup
		done.Add(2)
		go measure("ping", &blocked, &done)
		go measure("buildInfo", &other, &done)
		done.Wait()
		c.expect(blocked >= 500*time.Millisecond, true, fmt.Sprintf("%v is half a second", blocked))
		c.expect(other > 0 && other < blocked, true, "another connection was not blocked")
	})
}

func failPointTimes(c *C) {
	client := c.client("open", nil)
	outcomes := func(count int) (outcomes string) {
		for range count {
			if err := ping(client); err != nil {
				c.expectCode(err, 2)
				outcomes += "-"
			} else {
				outcomes += "+"
			}
		}
		return outcomes
	}
	for _, of := range []struct {
		mode     any
		expected string
	}{{bson.D{{"times", 2}}, "--+"}, {bson.D{{"skip", 1}}, "+--"}, {"alwaysOn", "---"}} {
		c.failPoint(client, of.mode, bson.D{{"failCommands", bson.A{"ping"}}, {"errorCode", 2}}, func() {
			c.expect(outcomes(3), of.expected, fmt.Sprintf("outcomes in the mode %v", of.mode))
		})
		c.expect(outcomes(1), "+", "outcome when it is off")
	}
}

func failPointAppName(c *C) {
	victim, other := c.client("open", opts{"appName": "victim"}), c.client("open", opts{"appName": "other"})
	data := bson.D{{"failCommands", bson.A{"ping"}}, {"errorCode", 2}, {"appName", "victim"}}
	c.failPoint(other, "alwaysOn", data, func() {
		c.must(ping(other))
		c.expectCode(ping(victim), 2)
	})
}

func errorLabels(c *C) {
	expectLabel := func(err error, label string) {
		labeled, ok := err.(mongo.LabeledError)
		c.expect(ok && labeled.HasErrorLabel(label), true, fmt.Sprintf("label %s of %v", label, err))
	}
	client := c.client("open", nil)
	data := bson.D{{"failCommands", bson.A{"ping"}}, {"errorCode", 2}, {"errorLabels", bson.A{"Mine", "Yours"}}}
	c.failPoint(client, bson.D{{"times", 1}}, data, func() {
		err := ping(client)
		expectLabel(err, "Mine")
		expectLabel(err, "Yours")
	})
	// A replica set labels what a driver may retry (SRV-8): a command with a number. This driver retries once.
	member := c.client("replica-set", opts{"replicaSet": "rs0"})
	data = bson.D{{"failCommands", bson.A{"insert"}}, {"errorCode", 262}}
	c.failPoint(member, bson.D{{"times", 2}}, data, func() {
		_, err := member.Database("test").Collection("labels").InsertOne(background, bson.D{})
		expectLabel(err, "RetryableWriteError")
	})
}

// Topologies.

func streamingHello(c *C) {
	// The server answers at most so late without a change.
	frequent := newHeartbeats()
	o := opts{"replicaSet": "rs0", "heartbeatFrequencyMS": "500"}
	c.must(ping(c.client("replica-set", o, frequent.set)))
	for range 3 {
		await(frequent.awaited, 5*time.Second, func(struct{}) bool { return true }, "reply that was awaited")
	}

	// A change is told at once, long before the next heartbeat.
	rare := newHeartbeats()
	o = opts{"replicaSet": "rs0", "heartbeatFrequencyMS": "60000", "serverSelectionTimeoutMS": "10000"}
	c.must(ping(c.client("replica-set", o, rare.set)))
	operator := c.client("replica-set", opts{"directConnection": "true"})
	c.run(operator, "admin", bson.D{{"replSetStepDown", 1}, {"force", true}})
	for _, next := range []struct {
		kind    string
		timeout time.Duration
	}{{"RSSecondary", 3 * time.Second}, {"RSPrimary", 10 * time.Second}} {
		await(rare.kinds, next.timeout, func(kind string) bool { return kind == next.kind }, "change to "+next.kind)
	}
}

func replicaSet(c *C) {
	sent, found := &commands{}, newHeartbeats()
	client := c.client("replica-set", opts{"replicaSet": "rs0"}, sent.set, found.set)
	c.must(ping(client))
	hasPrimary := func(topology event.TopologyDescription) bool { return topology.Kind == "ReplicaSetWithPrimary" }
	topology := await(found.topologies, 5*time.Second, hasPrimary, "replica set with a primary")
	c.expect(topology.SetName, "rs0", "set name")
	collection := c.fresh(client, "retried", bson.D{{"_id", 1}, {"n", 0}})
	concernError := bson.D{{"code", 262}, {"codeName", "ExceededTimeLimit"}, {"errmsg", "too late"}}
	// The first is not executed before it fails. The second is: the server must know it again by its number.
	for n, failure := range []bson.E{{"errorCode", 262}, {"writeConcernError", concernError}} {
		sent.forget()
		data := bson.D{{"failCommands", bson.A{"update"}}, {"errorLabels", bson.A{"RetryableWriteError"}}, failure}
		c.failPoint(client, bson.D{{"times", 1}}, data, func() {
			_, err := collection.UpdateOne(background, bson.D{{"_id", 1}}, bson.D{{"$inc", bson.D{{"n", 1}}}})
			c.must(err)
		})
		var document struct{ N int }
		c.must(collection.FindOne(background, bson.D{}).Decode(&document))
		c.expect(document.N, n+1, fmt.Sprintf("executions after %v", failure))
		updates := sent.of("update")
		c.expect(len(updates), 2, "attempts")
		c.expect(updates[0].Lookup("txnNumber"), updates[1].Lookup("txnNumber"), "number of the attempts")
	}
}

func loadBalanced(c *C) {
	sent := &commands{}
	collection := c.fresh(c.client("load-balanced", opts{"loadBalanced": "true"}, sent.set), "balanced", numbered(5)...)
	cursor, err := collection.Find(background, bson.D{}, options.Find().SetBatchSize(2))
	c.must(err)
	var found []bson.M
	c.must(cursor.All(background, &found))
	c.expect(len(found), 5, "documents")
	services := sent.answeredBy()
	c.expect(len(services) > 0 && services[0] != nil, true, "there is a service")
	for _, service := range services {
		c.expect(service, services[0], "service")
	}
	c.expectError(ping(c.client("open", soon.with(opts{"loadBalanced": "true"}))), "load balanc")
}

func threads32(c *C) {
	collection := c.fresh(c.client("open", opts{"maxPoolSize": "32"}), "threads")
	work := func(thread int) error {
		for n := range 20 {
			document := bson.D{{"_id", int32(thread*100 + n)}, {"text", fmt.Sprintf("%d-%d", thread, n)}}
			if _, err := collection.InsertOne(background, document); err != nil {
				return err
			}
			var found bson.D
			if err := collection.FindOne(background, document[:1]).Decode(&found); err != nil {
				return err
			}
			if fmt.Sprint(found) != fmt.Sprint(document) {
				return fmt.Errorf("%v instead of %v", found, document)
			}
		}
		return nil
	}
	results := make(chan error)
	for thread := range 32 {
		go func() { results <- work(thread) }()
	}
	for range 32 {
		c.must(<-results)
	}
	count, err := collection.EstimatedDocumentCount(background)
	c.must(err)
	c.expect(count, int64(640), "count")
}

func poolEventsOfOneCommand(c *C) {
	events := &poolEvents{}
	c.must(ping(c.client("open", nil, events.set)))
	c.expect(events.soFar(), []string{
		event.ConnectionPoolCreated,
		event.ConnectionPoolReady,
		event.ConnectionCheckOutStarted,
		event.ConnectionCreated,
		event.ConnectionReady,
		event.ConnectionCheckedOut,
		event.ConnectionCheckedIn,
	}, "events")
}
