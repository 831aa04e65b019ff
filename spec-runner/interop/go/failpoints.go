package main

import (
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The checks of fail points, and of the labels of errors that they cause.

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
