// franz-go over TLS and SASL: the program of ../access.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	longest = 60 * time.Second
	stay    = 10 * time.Minute // for a connection without requests: by default it is closed after 20 s
	tried   = 10 * time.Second
	pace    = 20 * time.Millisecond
)

type settings struct {
	Mode, Bootstrap, Protocol, Mechanism, Username, Password, Token string
	Authority, Certificate, Key                                     string
	Topic, Group                                                    string
	Records                                                         int
	Seconds                                                         float64
}

func main() {
	var access settings
	text, err := os.ReadFile(os.Args[1])
	check(err)
	check(json.Unmarshal(text, &access))
	done := map[string]func(settings) map[string]any{"once": once, "refused": refused, "steady": steady}[access.Mode](access)
	printed, err := json.Marshal(done)
	check(err)
	fmt.Println(string(printed))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(access settings, more ...kgo.Opt) *kgo.Client {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(access.Bootstrap, ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.UnknownTopicRetries(-1),
		kgo.ConnIdleTimeout(stay),
	}
	if mechanism := login(access); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	if strings.HasSuffix(access.Protocol, "SSL") {
		options = append(options, kgo.DialTLSConfig(encryption(access)))
	}
	client, err := kgo.NewClient(append(options, more...)...)
	check(err)
	return client
}

func login(access settings) sasl.Mechanism {
	switch access.Mechanism {
	case "PLAIN":
		return plain.Auth{User: access.Username, Pass: access.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: access.Username, Pass: access.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: access.Username, Pass: access.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: access.Token}.AsMechanism()
	}
	return nil
}

func encryption(access settings) *tls.Config {
	authority, err := os.ReadFile(access.Authority)
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if access.Certificate != "" {
		own, err := tls.LoadX509KeyPair(access.Certificate, access.Key)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func reader(access settings) *kgo.Client {
	return connect(
		access,
		kgo.ConsumerGroup(access.Group),
		kgo.ConsumeTopics(access.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
}

func record(access settings, number int) *kgo.Record {
	return &kgo.Record{Topic: access.Topic, Value: []byte(strconv.Itoa(number))}
}

func once(access settings) map[string]any {
	soon, cancel := context.WithTimeout(context.Background(), 2*longest)
	defer cancel()
	producer := connect(access)
	records := make([]*kgo.Record, access.Records)
	for number := range records {
		records[number] = record(access, number)
	}
	check(producer.ProduceSync(soon, records...).FirstErr())
	producer.Close()
	consumer, read := reader(access), map[string]bool{}
	for len(read) < access.Records {
		fetches := consumer.PollFetches(soon)
		check(fetches.Err())
		fetches.EachRecord(func(each *kgo.Record) { read[string(each.Value)] = true })
	}
	check(consumer.CommitUncommittedOffsets(soon))
	consumer.Close()
	return map[string]any{"read": len(read)}
}

func refused(access settings) map[string]any {
	soon, cancel := context.WithTimeout(context.Background(), tried)
	defer cancel()
	err := connect(access).Ping(soon)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		check(fmt.Errorf("not refused: %v", err))
	}
	return map[string]any{"refused": err.Error()}
}

func steady(access settings) map[string]any {
	producer, consumer := connect(access), reader(access)
	all, stop := context.WithCancel(context.Background())
	texts, written, read := []string{}, 0, 0
	seen, failed := make(chan int), make(chan error)
	go func() {
		for {
			fetches := consumer.PollFetches(all)
			if all.Err() != nil {
				return
			}
			if err := fetches.Err(); err != nil {
				failed <- err
			}
			seen <- fetches.NumRecords()
		}
	}()
	note := func() {
		select {
		case count := <-seen:
			read += count
		case err := <-failed:
			texts = append(texts, err.Error())
		case <-time.After(pace):
		}
	}
	until := time.Now().Add(time.Duration(access.Seconds * float64(time.Second)))
	for next := time.Now(); next.Before(until); next = next.Add(pace) {
		if err := producer.ProduceSync(all, record(access, written)).FirstErr(); err != nil {
			texts = append(texts, err.Error())
		}
		written++
		for time.Now().Before(next) {
			note()
		}
	}
	for until = time.Now().Add(longest); read < written && time.Now().Before(until); {
		note()
	}
	stop()
	producer.Close()
	consumer.Close()
	return map[string]any{"written": written, "read": read, "errors": texts}
}
