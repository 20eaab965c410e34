// The first process of a pod: keeps its namespaces alive until it is told to end, and reaps the
// children of containers that ended before them.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received == syscall.SIGCHLD {
			reap()
			continue
		}
		return
	}
}

func reap() {
	for {
		process, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if process <= 0 || err != nil {
			return
		}
	}
}
