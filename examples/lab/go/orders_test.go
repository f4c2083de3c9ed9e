// A lost acknowledgement under franz-go. `barnabas lab --topic orders` runs beside, or BARNABAS_LAB says where.
package orders

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var lab = cmp.Or(os.Getenv("BARNABAS_LAB"), "http://127.0.0.1:9645/v1/")

type answer struct {
	ID, Error string
	Fired     int
	Bootstrap string `json:"bootstrap_servers"`
	Records   []struct{ Value string }
}

func ask(t *testing.T, method, path, body string) (found answer) {
	t.Helper()
	request, _ := http.NewRequest(method, lab+path, strings.NewReader(body))
	request.Header.Set("content-type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil || found.Error != "" {
		t.Fatal(err, found.Error)
	}
	return found
}

func TestAnOrderIsWrittenOnce(t *testing.T) {
	ask(t, "POST", "reset", "")
	lost := ask(t, "POST", "faults", `{"drop": "Produce", "when": "after", "topic": "orders", "times": 1}`)
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(ask(t, "GET", "brokers", "").Bootstrap, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	order := "order " + time.Now().String()
	if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Value: []byte(order)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if fired := ask(t, "GET", "faults/"+lost.ID+"/wait", "").Fired; fired != 1 {
		t.Fatalf("the fault fired %d times", fired)
	}
	written := 0
	for _, record := range ask(t, "GET", "topics/orders/records", "").Records {
		if record.Value == order {
			written++
		}
	}
	if written != 1 {
		t.Fatalf("the order was written %d times", written)
	}
}
