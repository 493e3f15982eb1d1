"""The form of Gemini's generateContent."""
