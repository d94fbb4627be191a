"""`specadapt bench prediction`: by what a prompt's acceptance is best foretold."""
