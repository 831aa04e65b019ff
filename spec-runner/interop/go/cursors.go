package main

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The checks of cursors.

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
