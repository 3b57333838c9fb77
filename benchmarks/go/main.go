// Read a stream with AWS's SDK for Go, and print records per CPU second.
//
//	go run . STREAM RECORDS
//
// It reads the shards in turn and iterates over all records, like plain_loop() of
// peers.py. AWS_ENDPOINT_URL_KINESIS is the server to read from, and AWS_CA_BUNDLE has
// the certificate of its authority. The first page of the first shard isn't measured.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: go run . STREAM RECORDS")
	}
	records, err := strconv.Atoi(os.Args[2])
	if err != nil || records < 1 {
		log.Fatalf("RECORDS must be a positive number, not %q", os.Args[2])
	}
	perSecond, err := read(context.Background(), os.Args[1], records)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(perSecond)
}

// read returns the rate at which it read this many records.
func read(ctx context.Context, stream string, records int) (float64, error) {
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return 0, err
	}
	client := kinesis.NewFromConfig(loaded)
	iterators, err := begin(ctx, client, stream)
	if err != nil {
		return 0, err
	}
	count, dataBytes, began := 0, 0, time.Duration(-1)
	for {
		for shard, iterator := range iterators {
			page, err := client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: iterator})
			if err != nil {
				return 0, err
			}
			iterators[shard] = page.NextShardIterator
			for _, record := range page.Records {
				dataBytes += len(record.Data)
				if count++; began >= 0 && count == records {
					spent := cpuTime() - began
					if dataBytes == 0 {
						return 0, fmt.Errorf("the records of %s have no data", stream)
					}
					return float64(count) / spent.Seconds(), nil
				}
			}
			if began < 0 {
				count, began = 0, cpuTime()
			}
		}
	}
}

// begin returns an iterator at the beginning of each shard.
func begin(ctx context.Context, client *kinesis.Client, stream string) ([]*string, error) {
	listed, err := client.ListShards(ctx, &kinesis.ListShardsInput{StreamName: aws.String(stream)})
	if err != nil {
		return nil, err
	}
	var iterators []*string
	for _, shard := range listed.Shards {
		begun, err := client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
			StreamName:        aws.String(stream),
			ShardId:           shard.ShardId,
			ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
		})
		if err != nil {
			return nil, err
		}
		iterators = append(iterators, begun.ShardIterator)
	}
	return iterators, nil
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
