package main

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The checks of servers that say what they are: a replica set of one member, and one behind a load balancer.

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
	c.expectError(ping(c.client("replica-set", soon.with(opts{"loadBalanced": "true"}))), "load balanc")
}
