// Command interop runs the checks that the input file names, and prints a line for each.
//
// Usage: interop INPUT. The README one folder up describes the input, the lines and the exit status.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	failed, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func run(path string) (failed bool, err error) {
	var input struct {
		Servers map[string]server
		Checks  []string
	}
	bytes, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(bytes, &input)
	}
	if err != nil {
		return false, err
	}
	for _, name := range input.Checks {
		if problem := runCheck(name, input.Servers); problem != "" {
			failed = true
			fmt.Printf("FAIL %s: %s\n", name, strings.Join(strings.Fields(problem), " "))
		} else {
			fmt.Println("PASS", name)
		}
	}
	return failed, nil
}

// runCheck returns what is wrong, or nothing.
func runCheck(name string, servers map[string]server) (problem string) {
	check, found := checks[name]
	if !found {
		return "this program has no such check"
	}
	c := &C{servers: servers}
	defer c.close()
	defer func() {
		switch panicked := recover().(type) {
		case nil:
		case failure:
			problem = string(panicked)
		default:
			panic(panicked)
		}
	}()
	check(c)
	return ""
}
