package texts

import (
	"context"
	"math"
	"sort"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// mostDocuments is the limit of documents of a request.
const mostDocuments = 2048

type ranked struct {
	Index    int           `json:"index"`
	Score    float64       `json:"relevance_score"`
	Document *documentText `json:"document,omitempty"`
}

type documentText struct {
	Text string `json:"text"`
}

type ranking struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Model   string   `json:"model"`
	Results []ranked `json:"results"`
	Usage   usage    `json:"usage"`
	Meta    meta     `json:"meta"`
}

// meta is the member that Cohere's clients read.
type meta struct {
	Version version `json:"api_version"`
	Tokens  tokens  `json:"tokens"`
}

type version struct {
	Version string `json:"version"`
}

type tokens struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
}

func readRerank(call *dialect.Call, body *fields.Object) (string, task) {
	name := body.NeedText("model")
	query := body.NeedText("query")
	documents := readDocuments(body)
	topN := int64(len(documents))
	if value, ok := body.Integer("top_n", 1, math.MaxInt32); ok && value < topN {
		topN = value
	}
	withDocuments, ok := body.Flag("return_documents")
	withDocuments = withDocuments || !ok
	body.Refuse("rank_fields", "documents are texts")
	body.Refuse("max_tokens_per_doc", "documents are not cut")
	body.Refuse("max_chunks_per_doc", "documents are not cut")
	body.Only("truncate", "false")
	body.Pass("priority")
	openai.Pass(body)
	return name, func(ctx context.Context, model inference.Model) (any, error) {
		scores, count, err := model.Rank(ctx, query, documents)
		if err != nil {
			return nil, err
		}
		made := ranking{"rerank-" + call.ID, "list", name, rank(scores, int(topN)), usage{count, count}, meta{version{"2"}, tokens{count, 0}}}
		if withDocuments {
			for i := range made.Results {
				made.Results[i].Document = &documentText{documents[made.Results[i].Index]}
			}
		}
		return made, nil
	}
}

// readDocuments reads a list of texts, and of objects with a text.
func readDocuments(body *fields.Object) (documents []string) {
	for _, value := range body.NeedList("documents", 1, mostDocuments) {
		text := ""
		if value.Kind() == fields.Members {
			object := value.Object()
			text = object.NeedText("text")
			object.Done()
		} else if text = value.Text(); text == "" {
			value.Fail(fields.Empty, "is empty")
		}
		documents = append(documents, text)
	}
	return documents
}

// rank returns the `topN` highest scores in descending order; ties keep their input order.
func rank(scores []float64, topN int) []ranked {
	results := make([]ranked, len(scores))
	for i, score := range scores {
		results[i] = ranked{Index: i, Score: score}
	}
	sort.SliceStable(results, func(a, b int) bool { return results[a].Score > results[b].Score })
	if topN < len(results) {
		results = results[:topN]
	}
	return results
}
