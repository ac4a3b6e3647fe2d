// A loop over Go's own HTTP client: loop PAGES SEEDS CONCURRENCY. Links are found by one expression.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

var href = regexp.MustCompile(`href="([^"]+)"`)

func links(page string) []string {
	response, err := http.Get(page)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	base, err := url.Parse(page)
	if err != nil {
		panic(err)
	}
	var found []string
	for _, match := range href.FindAllSubmatch(body, -1) {
		if link, err := base.Parse(string(match[1])); err == nil {
			found = append(found, link.String())
		}
	}
	return found
}

func main() {
	pages, _ := strconv.Atoi(os.Args[1])
	seeds, err := os.ReadFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	workers, _ := strconv.Atoi(os.Args[3])
	waiting, known := strings.Fields(string(seeds)), map[string]bool{}
	for _, page := range waiting {
		known[page] = true
	}
	taken, running := 0, 0
	lock := sync.Mutex{}
	changed := sync.NewCond(&lock)
	done := sync.WaitGroup{}
	for i := 0; i < workers; i++ {
		done.Add(1)
		go func() {
			defer done.Done()
			lock.Lock()
			defer lock.Unlock()
			for {
				for len(waiting) == 0 && running > 0 && taken < pages {
					changed.Wait()
				}
				if len(waiting) == 0 || taken == pages {
					changed.Broadcast()
					return
				}
				page := waiting[0]
				waiting = waiting[1:]
				taken++
				running++
				lock.Unlock()
				found := links(page)
				lock.Lock()
				running--
				for _, link := range found {
					if !known[link] {
						known[link] = true
						waiting = append(waiting, link)
					}
				}
				changed.Broadcast()
			}
		}()
	}
	done.Wait()
	fmt.Printf("{\"pages\": %d}\n", taken)
}
