package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// background is the context of all calls: the server, or the one who started this program, ends what takes too long.
var background = context.Background()

type server struct {
	Address      string
	Certificates string
	DNS          string
	// Options are those that every connection string for it has.
	Options opts
}

// C is one check's run: its clients, and its end when something is not as expected.
type C struct {
	servers map[string]server
	clients []*mongo.Client
}

// failure ends a check.
type failure string

// opts are the options of a connection string. user and password are those before the host.
type opts map[string]string

// with returns both, where they differ those of other.
func (o opts) with(other opts) opts {
	both := opts{}
	for _, from := range []opts{o, other} {
		for name, value := range from {
			both[name] = value
		}
	}
	return both
}

// uri is a connection string for the server.
func (c *C) uri(server string, o opts) string {
	u := url.URL{Scheme: "mongodb", Host: c.servers[server].Address, Path: "/"}
	query := url.Values{"serverSelectionTimeoutMS": {"5000"}}
	for name, value := range c.servers[server].Options.with(o) {
		if name != "user" && name != "password" {
			query.Set(name, value)
		}
	}
	if user := o["user"]; user != "" {
		u.User = url.UserPassword(user, o["password"])
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String()
}

// tryClient makes a client of the server by a connection string, which is closed when the check ends.
func (c *C) tryClient(server string, o opts, set ...func(*options.ClientOptions)) (*mongo.Client, error) {
	clientOptions := options.Client().ApplyURI(c.uri(server, o))
	for _, set := range set {
		set(clientOptions)
	}
	client, err := mongo.Connect(clientOptions)
	if err == nil {
		c.clients = append(c.clients, client)
	}
	return client, err
}

func (c *C) client(server string, o opts, set ...func(*options.ClientOptions)) *mongo.Client {
	client, err := c.tryClient(server, o, set...)
	c.must(err)
	return client
}

// clientByDNS makes a client of the server that this name leads to. From then on this program looks up names at the
// server's DNS server.
func (c *C) clientByDNS(server, name string) *mongo.Client {
	var dialer net.Dialer
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, c.servers[server].DNS)
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dial}
	uri := "mongodb+srv://" + name + "/?tls=false&serverSelectionTimeoutMS=10000"
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	c.must(err)
	c.clients = append(c.clients, client)
	return client
}

// tls are the options of a client that trusts ca and shows the certificate, if one is given.
func (c *C) tls(server, ca, certificate string) opts {
	folder := c.servers[server].Certificates
	o := opts{"tls": "true", "tlsCAFile": filepath.Join(folder, ca)}
	if certificate != "" {
		o["tlsCertificateKeyFile"] = filepath.Join(folder, certificate)
	}
	return o
}

func (c *C) close() {
	for _, client := range c.clients {
		// What could go wrong here has nothing to do with the check.
		_ = client.Disconnect(background)
	}
}

// failPoint sets a fail point while action runs.
func (c *C) failPoint(client *mongo.Client, mode any, data bson.D, action func()) {
	set := func(mode any, data bson.D) {
		c.run(client, "admin", bson.D{{"configureFailPoint", "failCommand"}, {"mode", mode}, {"data", data}})
	}
	set(mode, data)
	defer set("off", bson.D{})
	action()
}

// run runs a command, which must succeed.
func (c *C) run(client *mongo.Client, database string, command bson.D) bson.M {
	var reply bson.M
	c.must(client.Database(database).RunCommand(background, command).Decode(&reply))
	return reply
}

func ping(client *mongo.Client) error {
	return client.Database("admin").RunCommand(background, bson.D{{"ping", 1}}).Err()
}

// must ends the check if there is an error.
func (c *C) must(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

func (c *C) expect(actual, expected any, what string) {
	if !reflect.DeepEqual(actual, expected) {
		panic(failure(fmt.Sprintf("%s: %v instead of %v", what, actual, expected)))
	}
}

// expectCode fails unless the server answered with the error of this code.
func (c *C) expectCode(err error, code int) {
	var serverError mongo.ServerError
	if !errors.As(err, &serverError) || !serverError.HasErrorCode(code) {
		panic(failure(fmt.Sprintf("%v instead of an error of code %d", err, code)))
	}
}

// expectError fails unless there is an error that says so.
func (c *C) expectError(err error, text string) {
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), text) {
		panic(failure(fmt.Sprintf("%v instead of an error that says %q", err, text)))
	}
}

// commands are what a client sent, and the services that answered.
type commands struct {
	mutex    sync.Mutex
	sent     []*event.CommandStartedEvent
	services []*bson.ObjectID
}

func (m *commands) set(o *options.ClientOptions) {
	o.SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, started *event.CommandStartedEvent) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			m.sent = append(m.sent, started)
		},
		Succeeded: func(_ context.Context, succeeded *event.CommandSucceededEvent) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			m.services = append(m.services, succeeded.ServiceID)
		},
	})
}

// of are the commands of this name.
func (m *commands) of(name string) (sent []bson.Raw) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, started := range m.sent {
		if started.CommandName == name {
			sent = append(sent, started.Command)
		}
	}
	return sent
}

// answeredBy are the services that answered, in order.
func (m *commands) answeredBy() []*bson.ObjectID {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.services)
}

func (m *commands) forget() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.sent = nil
}

// heartbeats are what a client's monitor finds out: replies that it awaited, and kinds of topologies and servers.
type heartbeats struct {
	awaited    chan struct{}
	kinds      chan string
	topologies chan event.TopologyDescription
}

func newHeartbeats() *heartbeats {
	return &heartbeats{make(chan struct{}, 100), make(chan string, 100), make(chan event.TopologyDescription, 100)}
}

func (h *heartbeats) set(o *options.ClientOptions) {
	o.SetServerMonitor(&event.ServerMonitor{
		ServerHeartbeatSucceeded: func(succeeded *event.ServerHeartbeatSucceededEvent) {
			if succeeded.Awaited {
				h.awaited <- struct{}{}
			}
		},
		ServerDescriptionChanged: func(changed *event.ServerDescriptionChangedEvent) {
			h.kinds <- changed.NewDescription.Kind
		},
		TopologyDescriptionChanged: func(changed *event.TopologyDescriptionChangedEvent) {
			h.topologies <- changed.NewDescription
		},
	})
}

// await takes values from the channel until one is as wanted; the check fails if none comes in time.
func await[T any](values <-chan T, timeout time.Duration, wanted func(T) bool, what string) T {
	deadline := time.After(timeout)
	for {
		select {
		case value := <-values:
			if wanted(value) {
				return value
			}
		case <-deadline:
			panic(failure(fmt.Sprintf("within %v there was no %s", timeout, what)))
		}
	}
}

// poolEvents are the types of a pool's events, in order.
type poolEvents struct {
	mutex sync.Mutex
	types []string
}

func (p *poolEvents) set(o *options.ClientOptions) {
	o.SetPoolMonitor(&event.PoolMonitor{Event: func(happened *event.PoolEvent) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.types = append(p.types, happened.Type)
	}})
}

func (p *poolEvents) soFar() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.types)
}
