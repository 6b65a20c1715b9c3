// Reads lines "six fields<TAB>start<TAB>count" and prints the times that robfig/cron v1, which Kubeflow uses, gives.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron"
)

func main() {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		parts := strings.Split(scanner.Text(), "\t")
		schedule, err := cron.Parse(parts[0])
		if err != nil {
			fmt.Printf("error: %v\n", err)
			continue
		}
		at, _ := time.Parse(time.RFC3339, parts[1])
		count, _ := strconv.Atoi(parts[2])
		found := []string{}
		for ; count > 0; count-- {
			at = schedule.Next(at.UTC())
			found = append(found, at.Format(time.RFC3339))
		}
		fmt.Println(strings.Join(found, " "))
	}
}
