package main

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The checks of the compressors.

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
