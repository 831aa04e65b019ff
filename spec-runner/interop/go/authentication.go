package main

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The checks of authentication, and of users that are made by a command.

const subject = "CN=client,OU=cmap,O=cmap"

var user = opts{"user": "user", "password": "secret"}

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

func createUser(c *C) {
	client := c.client("auth", user)
	c.run(client, "users", bson.D{{"dropAllUsersFromDatabase", 1}})
	roles := bson.A{bson.D{{"role", "readWrite"}, {"db", "users"}}}
	mechanisms := bson.A{"SCRAM-SHA-256"}
	c.run(client, "users", bson.D{{"createUser", "new"}, {"pwd", "p\u00e4ss"}, {"roles", roles}, {"mechanisms", mechanisms}})
	created := c.client("auth", opts{"user": "new", "password": "p\u00e4ss", "authSource": "users"})
	c.expectLogin(created, "new", "users")
}

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
