// Command writers goes on writing while the hub before its deployment is upgraded, until standard input ends. It prints what its writers have
// met, as JSON.
//
// Usage: writers URI WRITERS COLLECTION. Each writer inserts documents `WRITER-NUMBER`, changes each by `updateMany`, and reads it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const rest = 20 * time.Millisecond

type met struct {
	mutex        sync.Mutex
	Acknowledged map[string]int `json:"acknowledged"`
	Errors       map[string]int `json:"errors"`
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(uri, writers, name string) error {
	count, err := strconv.Atoi(writers)
	if err != nil {
		return err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMaxPoolSize(uint64(count)))
	if err != nil {
		return err
	}
	collection := client.Database("upgrades").Collection(name)
	met := &met{Acknowledged: map[string]int{"insert": 0, "update": 0, "find": 0}, Errors: map[string]int{}}
	var ended atomic.Bool
	var group sync.WaitGroup
	for writer := range count {
		group.Go(func() {
			for number := 1; !ended.Load(); number++ {
				write(collection, fmt.Sprintf("%d-%d", writer, number), met)
				time.Sleep(rest)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	group.Wait()
	return json.NewEncoder(os.Stdout).Encode(met)
}

func write(collection *mongo.Collection, id string, met *met) {
	ctx := context.Background()
	document := bson.D{{Key: "_id", Value: id}}
	_, err := collection.InsertOne(ctx, document)
	met.note("insert", err)
	_, err = collection.UpdateMany(ctx, document, bson.D{{Key: "$inc", Value: bson.D{{Key: "times", Value: 1}}}})
	met.note("update", err)
	met.note("find", collection.FindOne(ctx, document).Err())
}

func (m *met) note(step string, err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if err == nil {
		m.Acknowledged[step]++
		return
	}
	text := step + ": " + err.Error()
	m.Errors[text[:min(len(text), 200)]]++
}
