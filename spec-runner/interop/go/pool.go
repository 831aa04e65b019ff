package main

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// The checks of the connection pool.

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
