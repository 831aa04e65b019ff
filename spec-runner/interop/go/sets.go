package main

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// The checks of a replica set with several members.

// numbers are the tags of the members.
var numbers = []string{"0", "1", "2"}

// srvName leads to the members, at their DNS server.
const srvName = "members.cmap.test"

// clientOfSet is told of one member, and has to find the others.
func (c *C) clientOfSet() *mongo.Client {
	return c.client("members", opts{"replicaSet": "rs0", "serverSelectionTimeoutMS": "10000"})
}

type hello struct {
	Me        string
	Secondary bool
	Tags      map[string]string
}

// hello is that of the member that the read preference chooses.
func (c *C) hello(client *mongo.Client, preference *readpref.ReadPref) (reply hello) {
	set := options.RunCmd().SetReadPreference(preference)
	c.must(client.Database("admin").RunCommand(background, bson.D{{"hello", 1}}, set).Decode(&reply))
	return reply
}

// freshInSet is an empty collection, whose documents all members have.
func (c *C) freshInSet(client *mongo.Client, name string) *mongo.Collection {
	collection := inSet(client, name, 3)
	c.must(collection.Drop(background))
	return collection
}

// inSet is a collection whose writes wait for the members that w says.
func inSet(client *mongo.Client, name string, w any) *mongo.Collection {
	concern := &writeconcern.WriteConcern{W: w}
	return client.Database("test").Collection(name, options.Collection().SetWriteConcern(concern))
}

func (c *C) insertID(collection *mongo.Collection, id int) {
	_, err := collection.InsertOne(background, bson.D{{"_id", id}})
	c.must(err)
}

func (c *C) ids(collection *mongo.Collection) (ids []int) {
	cursor, err := collection.Find(background, bson.D{})
	c.must(err)
	var found []struct {
		ID int `bson:"_id"`
	}
	c.must(cursor.All(background, &found))
	for _, document := range found {
		ids = append(ids, document.ID)
	}
	return ids
}

func setSecondaryReads(c *C) {
	client := c.clientOfSet()
	c.insertID(c.freshInSet(client, "secondaryReads"), 1)
	primary := c.hello(client, readpref.Primary()).Tags["number"]
	for _, number := range numbers {
		if number == primary {
			continue
		}
		preference := readpref.Secondary(readpref.WithTags("number", number))
		found := c.hello(client, preference)
		c.expect(found.Secondary, true, "is a secondary")
		c.expect(found.Tags, map[string]string{"number": number}, "tags")
		set := options.Collection().SetReadPreference(preference)
		c.expect(c.ids(client.Database("test").Collection("secondaryReads", set)), []int{1}, "documents")
	}
}

func setStepDown(c *C) {
	client := c.clientOfSet()
	collection := c.freshInSet(client, "stepDown")
	c.insertID(collection, 1)
	before := c.hello(client, readpref.Primary()).Me
	c.run(client, "admin", bson.D{{"replSetStepDown", 2}})
	// The driver finds the next primary, and sends again what the old one refuses.
	c.insertID(collection, 2)
	c.expect(c.hello(client, readpref.Primary()).Me != before, true, "another member is the primary")
	c.expect(c.ids(collection), []int{1, 2}, "documents")
}

func setKill(c *C) {
	client := c.clientOfSet()
	c.insertID(c.freshInSet(client, "kill"), 1)
	before := c.hello(client, readpref.Primary()).Me
	c.run(client, "admin", bson.D{{"testDeployment", "kill"}, {"member", before}})
	c.insertID(inSet(client, "kill", "majority"), 2)
	c.expect(c.hello(client, readpref.Primary()).Me != before, true, "another member is the primary")

	c.run(client, "admin", bson.D{{"testDeployment", "restart"}, {"member", before}})
	// All members have it once the one that was killed has caught up.
	collection := inSet(client, "kill", 3)
	c.insertID(collection, 3)
	c.expect(c.ids(collection), []int{1, 2, 3}, "documents")
}

func setChangeStream(c *C) {
	client := c.clientOfSet()
	collection := c.freshInSet(client, "changes")
	stream, err := collection.Watch(background, mongo.Pipeline{})
	c.must(err)
	defer func() { c.must(stream.Close(background)) }()
	next := func() (kind string) {
		c.expect(stream.Next(background), true, "there is a change")
		c.must(stream.Current.Lookup("operationType").Unmarshal(&kind))
		return kind
	}
	c.insertID(collection, 1)
	c.expect(next(), "insert", "change")
	// The stream goes on over another connection.
	data := bson.D{{"failCommands", bson.A{"getMore"}}, {"closeConnection", true}}
	c.run(client, "admin", bson.D{{"configureFailPoint", "failCommand"}, {"mode", bson.D{{"times", 1}}}, {"data", data}})
	_, err = collection.BulkWrite(background, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(bson.D{{"_id", 2}}),
		mongo.NewUpdateOneModel().SetFilter(bson.D{{"_id", 1}}).SetUpdate(bson.D{{"$set", bson.D{{"x", 1}}}}),
		mongo.NewDeleteOneModel().SetFilter(bson.D{{"_id", 1}}),
	})
	c.must(err)
	c.expect([]string{next(), next(), next()}, []string{"insert", "update", "delete"}, "changes of the bulk write")
}

func setSrv(c *C) {
	client := c.clientByDNS("members", srvName)
	collection := c.freshInSet(client, "srv")
	c.insertID(collection, 1)
	c.expect(c.ids(collection), []int{1}, "documents")
	// The TXT record names the set, whose members name themselves.
	c.expect(c.hello(client, readpref.Secondary()).Secondary, true, "is a secondary")
}
