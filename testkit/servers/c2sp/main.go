// Command c2sp is the other side of the tests: what others wrote for the formats that we speak, behind one command.
//
//	open VKEY...                 opens the note on stdin and prints who signed, a name and a key id a line
//	cosign SKEY                  adds a cosignature to the note on stdin
//	proof VKEY                   checks the tlog-proof on stdin and prints it as it writes it itself
//	policy FILE                  fails unless the policy in the file is satisfied by the note on stdin
//	witness SKEY VKEY            serves a witness for the log with this key; prints its address
//	log DIR SKEY POLICY COUNT    appends entries to a tiled log one by one, each published only when the policy is met
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	formatslog "github.com/transparency-dev/formats/log"
	formatsnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/formats/proof"
	formatswitness "github.com/transparency-dev/formats/witness"
	merkle "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command string, arguments []string) error {
	switch command {
	case "open":
		return open(arguments)
	case "cosign":
		return cosign(arguments[0])
	case "proof":
		return checkProof(arguments[0])
	case "policy":
		return checkPolicy(arguments[0])
	case "witness":
		return serveWitness(arguments[0], arguments[1])
	case "log":
		count, err := strconv.Atoi(arguments[3])
		if err != nil {
			return err
		}
		return growLog(arguments[0], arguments[1], arguments[2], count)
	}
	return fmt.Errorf("unknown command %q", command)
}

// verifier returns the verifier of a log's plain Ed25519 key or of a cosigner's.
func verifier(vkey string) (note.Verifier, error) {
	parts := strings.Split(vkey, "+")
	key, err := base64.StdEncoding.DecodeString(strings.Join(parts[2:], "+"))
	if err != nil {
		return nil, err
	}
	if key[0] == 1 {
		return note.NewVerifier(vkey)
	}
	return formatsnote.NewVerifierForCosignatureV1(vkey)
}

func open(vkeys []string) error {
	verifiers := []note.Verifier{}
	for _, vkey := range vkeys {
		v, err := verifier(vkey)
		if err != nil {
			return err
		}
		verifiers = append(verifiers, v)
	}
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	opened, err := note.Open(data, note.VerifierList(verifiers...))
	if err != nil {
		return err
	}
	for _, signature := range opened.Sigs {
		fmt.Printf("%s %08x\n", signature.Name, signature.Hash)
	}
	return nil
}

func cosign(skey string) error {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	signer, err := formatsnote.NewSignerForCosignatureV1(skey)
	if err != nil {
		return err
	}
	text, signatures, _ := strings.Cut(string(data), "\n\n")
	signed, err := note.Sign(&note.Note{Text: text + "\n"}, signer)
	if err != nil {
		return err
	}
	_, cosignature, _ := strings.Cut(string(signed), "\n\n")
	fmt.Print(text + "\n\n" + signatures + cosignature)
	return nil
}

func checkProof(vkey string) error {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	v, err := verifier(vkey)
	if err != nil {
		return err
	}
	var parsed proof.TLogProof
	if err := parsed.Unmarshal(data); err != nil {
		return err
	}
	checkpoint, _, _, err := formatslog.ParseCheckpoint(parsed.Checkpoint, v.Name(), v)
	if err != nil {
		return err
	}
	hashes := [][]byte{}
	for _, hash := range parsed.Hashes {
		hashes = append(hashes, hash[:])
	}
	leaf := rfc6962.DefaultHasher.HashLeaf(parsed.ExtraData)
	err = merkle.VerifyInclusion(rfc6962.DefaultHasher, parsed.Index, checkpoint.Size, leaf, hashes, checkpoint.Hash)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(parsed.Marshal())
	return err
}

func checkPolicy(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	policy, err := formatswitness.ParsePolicy(text)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if !policy.Satisfied(data) {
		return fmt.Errorf("the policy is not satisfied")
	}
	return nil
}

func serveWitness(skey, vkey string) error {
	signer, err := formatsnote.NewSignerForCosignatureV1(skey)
	if err != nil {
		return err
	}
	v, err := verifier(vkey)
	if err != nil {
		return err
	}
	known := func(_ context.Context, origin string) (note.Verifier, bool, error) {
		return v, origin == v.Name(), nil
	}
	w, err := witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer}, VerifierForLog: known,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	go func() { // ends with whoever started it: its end of this pipe closes
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	handler := http.NewServeMux()
	handler.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	return http.Serve(listener, handler)
}

func growLog(directory, skey, policyFile string, count int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	signer, err := note.NewSigner(skey)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(policyFile)
	if err != nil {
		return err
	}
	group, err := tessera.NewWitnessGroupFromPolicy(text)
	if err != nil {
		return err
	}
	driver, err := posix.New(ctx, posix.Config{Path: directory})
	if err != nil {
		return err
	}
	options := tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithBatching(1, 10*time.Millisecond).
		WithCheckpointInterval(100*time.Millisecond).
		WithWitnesses(group, &tessera.WitnessOptions{Timeout: 10 * time.Second})
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, options)
	if err != nil {
		return err
	}
	await := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 20*time.Millisecond)
	for number := range count {
		entry := tessera.NewEntry([]byte(fmt.Sprintf("entry %d", number)))
		if _, _, err := await.Await(ctx, appender.Add(ctx, entry)); err != nil {
			return err
		}
	}
	return shutdown(ctx)
}
