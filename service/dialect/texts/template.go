package texts

import (
	"context"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// conversation is a conversation to render as a text or as tokens, with the options of rendering.
type conversation struct {
	messages []openai.Message
	options  inference.Options
}

func readConversation(body *fields.Object) conversation {
	made := conversation{options: inference.Options{}}
	made.messages = openai.Messages(body, "messages")
	openai.ReadTools(body, made.options)
	_ = openai.Template(body, made.options)
	_, continues := made.options["continue_final_message"]
	begins, ok := body.Flag("add_generation_prompt")
	if ok && begins && continues {
		body.Fail("add_generation_prompt", fields.ValueRefused, "is true; false is wanted with 'continue_final_message'")
	}
	made.options["add_generation_prompt"] = flag(begins || !ok && !continues)
	if text, ok := body.Text("chat_template"); ok && text != "" {
		made.options["template"] = text
	}
	body.Only("add_special_tokens", "false")
	return made
}

func (c conversation) render(model inference.Model) (text string, tokens []int32, err error) {
	return model.Render(openai.Conversation(c.messages, model.Info().Template), c.options)
}

// readTemplate reads a request of llama.cpp's /apply-template, which returns the text of a conversation.
func readTemplate(_ *dialect.Call, body *fields.Object) (string, task) {
	name := optionalModel(body)
	made := readConversation(body)
	return name, func(_ context.Context, model inference.Model) (any, error) {
		text, _, err := made.render(model)
		if err != nil {
			return nil, err
		}
		return map[string]string{"prompt": text}, nil
	}
}

// readChat reads a request of vLLM's /tokenize with a conversation.
func readChat(body *fields.Object) task {
	made := readConversation(body)
	texts, _ := body.Flag("return_token_strs")
	return func(_ context.Context, model inference.Model) (any, error) {
		_, ids, err := made.render(model)
		if err != nil {
			return nil, err
		}
		return tellTokens(model, ids, texts), nil
	}
}
