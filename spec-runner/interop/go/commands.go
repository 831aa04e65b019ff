package main

import (
	"bytes"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// The checks of single commands, from a ping to documents as large as a server takes.

// largest is the length of the longest document that a server takes.
const largest = 16 * 1024 * 1024

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
