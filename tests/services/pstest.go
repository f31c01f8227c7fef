// Google's own stand-in for Pub/Sub, which lives in memory, as a server of its own.
package main

import (
	"flag"
	"fmt"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port := flag.Int("port", 8085, "the port on loopback")
	flag.Parse()
	server := pstest.NewServerWithAddress(fmt.Sprintf("127.0.0.1:%d", *port))
	fmt.Println("listening on", server.Addr)
	select {}
}
